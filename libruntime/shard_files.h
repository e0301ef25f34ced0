#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/base/log.h"
#include "trash_panda/format/manifest.h"

namespace trash_panda::runtime {

/// The shards of a pack, open for reading, their headers checked.
///
/// Each is opened for direct reads; where these are refused or ask for an alignment that the pack
/// doesn't have, the shard is read through the page cache instead, which is logged once for each
/// filesystem.
class ShardFiles {
 public:
  /// @retval kMismatch  A header differs from its checksum.
  /// @retval kCorrupt   A shard is missing or shorter than the manifest says.
  static Result<ShardFiles> open(const std::filesystem::path& pack,
                                 const format::Manifest& manifest, const Logger& log);

  /// Opens the files of a checkpoint, whose headers were read already. Every second one is read
  /// through the page cache, whatever the filesystem.
  ///
  /// @param page_bytes  What all reads of the others are a multiple of.
  /// @retval kMissing  One is gone.
  static Result<ShardFiles> open_checkpoint(const std::vector<std::filesystem::path>& files,
                                            std::uint64_t page_bytes, const Logger& log);

  /// Same indexes as Manifest::shards. The address is stable for the life of this object, moves
  /// included.
  [[nodiscard]] const File& file(std::size_t shard_index) const { return files_[shard_index]; }
  [[nodiscard]] std::size_t shard_count() const { return files_.size(); }
  /// Which drive (strictly, filesystem) a shard lies on, below drive_count().
  [[nodiscard]] std::size_t drive(std::size_t shard_index) const { return drives_[shard_index]; }
  [[nodiscard]] std::size_t drive_count() const { return drive_count_; }
  /// Modes and filesystems in force: "direct (ext4)", "direct (ext4) and buffered (9p)".
  [[nodiscard]] const std::string& description() const { return description_; }

 private:
  class Opener;

  std::vector<File> files_;
  std::vector<std::size_t> drives_;  ///< By shard.
  std::size_t drive_count_ = 0;
  std::string description_;
};

}  // namespace trash_panda::runtime
