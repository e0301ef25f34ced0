#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// How much of a pack is read.
enum class VerifyDepth {
  kFull,   ///< Every byte.
  kQuick,  ///< Manifest, plan and the headers of the shards: what is missing, cut or mixed up.
};

struct VerifyOptions {
  VerifyDepth depth = VerifyDepth::kFull;
  ProgressCallback progress = {};  ///< May be empty.
  StopFlag stop = nullptr;
};

/// What verify_pack() found. Empty `mismatches`: every byte is as it was written.
struct VerifyReport {
  std::uint64_t verified_bytes = 0;
  std::uint64_t extent_count = 0;       ///< That were read.
  std::vector<std::string> mismatches;  ///< One line each, naming the extent or header and shard.
  /// How many of them are because the system could not read what is there, as when a drive or its
  /// cable fails: that proves no damage.
  std::size_t unreadable_count = 0;
  bool is_direct = true;  ///< Every shard was read past the page cache, so from the drive itself.
};

/// Reads the files of a pack, headers and padding included, with direct I/O where the filesystem
/// allows, and compares with the manifest's checksums; and what the headers list with what the
/// manifest does. All mismatches are collected: what can't be
/// read is one, such as every extent of a missing shard, and those behind the end of a cut one.
///
/// @retval kFailed       The manifest or the plan can't be read.
/// @retval kCorrupt      The manifest itself is damaged, or the plan is missing.
/// @retval kInterrupted  `options.stop` was set.
Result<VerifyReport> verify_pack(const std::filesystem::path& pack, const VerifyOptions& options);

/// Compares every tensor of a pack, decoded, bit for bit with the checkpoint that it was made from,
/// under each name that the checkpoint stores it. One line for each that differs, which names
/// extent and tensor.
///
/// @param weights  Of `checkpoint`.
/// @retval kStale        The checkpoint is another one: it lacks a tensor of the pack, has one
///                       more, or one of another shape or dtype.
/// @retval kCorrupt      The pack is damaged.
/// @retval kInterrupted  `options.stop` was set.
Result<VerifyReport> compare_with_source(const std::filesystem::path& pack,
                                         const Checkpoint& checkpoint, const WeightTable& weights,
                                         const VerifyOptions& options);

}  // namespace trash_panda::format
