#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/format/pack_writer.h"

#include "extent_source.h"
#include "pace.h"
#include "pack_journal.h"

namespace trash_panda::format {

/// Writes the shards of a pack, extent after extent. Reading, checksums and writing overlap.
///
/// What is finished is synced, then entered in the journal. Extents follow each other without gaps,
/// whatever their codes take; the header comes last, when that is known.
class ShardWriter {
 public:
  /// @param folder    Where the shards go.
  /// @param manifest  As lay_out_pack() made it; finished extents are entered there, too.
  ShardWriter(FileSystem& file_system, std::filesystem::path folder, const ExtentSource& source,
              const PackOptions& options, PackJournal& journal, Manifest& manifest);

  /// Writes one shard, durably.
  ///
  /// @param extents         Its extents, in order.
  /// @param finished_count  How many of them an earlier run finished.
  Result<void> write(std::uint32_t shard_index, std::span<const std::size_t> extents,
                     std::size_t finished_count);

 private:
  Result<std::unique_ptr<WritableFile>> open(const PackedShard& shard, Tier tier,
                                             std::uint64_t kept_bytes);
  Result<std::filesystem::path> place(const PackedShard& shard, Tier tier);
  Result<void> write_extents(WritableFile& file, std::span<const std::size_t> extents,
                             std::uint64_t offset_bytes);
  Result<void> finish_extent(WritableFile& file, std::size_t extent_index);
  /// @param synced  Of the file that they are in.
  Result<void> enter_finished(Result<void> synced);
  Result<void> write_header(WritableFile& file, std::uint32_t shard_index);
  void advance(std::uint64_t bytes);

  FileSystem& file_system_;
  std::filesystem::path folder_;
  const ExtentSource& source_;
  const PackOptions& options_;
  PackJournal& journal_;
  Manifest& manifest_;
  Progress progress_;
  Pace pace_;
  std::vector<const PackedExtent*> finished_;  ///< Written, but not synced and entered yet.
  std::uint64_t finished_bytes_ = 0;           ///< Of them.
  bool has_sync_failed_ = false;
};

}  // namespace trash_panda::format
