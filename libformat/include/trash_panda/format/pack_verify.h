#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/format/manifest.h"

namespace trash_panda::format {

struct VerifyOptions {
  ProgressCallback progress;  ///< May be empty.
  StopFlag stop = nullptr;
};

/// What verify_pack() found. Empty `mismatches`: every byte is as it was written.
struct VerifyReport {
  std::uint64_t verified_bytes = 0;
  std::uint64_t extent_count = 0;
  std::vector<std::string> mismatches;  ///< One line each, naming the extent or header and shard.
  bool is_direct = true;  ///< Every shard was read past the page cache, so from the drive itself.
};

/// Reads every file of a pack, headers and padding included, with direct I/O where the filesystem
/// allows, and compares with the manifest's checksums. All mismatches are collected.
///
/// @retval kFailed       A read failed.
/// @retval kCorrupt      The manifest itself is damaged, or a shard is missing or of another size.
/// @retval kInterrupted  `options.stop` was set.
Result<VerifyReport> verify_pack(const std::filesystem::path& pack, const VerifyOptions& options);

}  // namespace trash_panda::format
