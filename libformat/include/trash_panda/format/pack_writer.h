#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/base/log.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// One extent to write: which weights go in, and where it waits.
struct ExtentLayout {
  std::string name;
  Tier tier;
  std::vector<std::size_t> weights;  ///< Into WeightTable::weights; each in exactly one extent.
};

/// What to pack, in the order of the manifest: base extents, then blocks in execution order.
struct PackLayout {
  std::vector<ExtentLayout> extents;
  std::map<std::string, std::string> aliases;
  std::string plan_toml;  ///< Stored as plan.toml.
};

struct PackOptions {
  std::uint64_t page_bytes = 4096;              ///< Extents start on a multiple of this.
  std::uint64_t reserve_bytes = 1'000'000'000;  ///< Space to leave free on the target drive.
  std::string generator;
  ProgressCallback progress;  ///< May be empty.
  StopFlag stop = nullptr;
  Logger log = silent_logger();
};

/// What a pack takes, before it is written.
struct PackSize {
  std::uint64_t total_bytes;  ///< All shards, with headers and padding.
  std::map<Tier, std::uint64_t> tier_bytes;
};

/// Whether a checkpoint is of a kind that packs can hold. Others can be looked at and planned for.
///
/// @retval kUnsupported  It is not; the message says what it is and the hint what to get instead.
Result<void> check_packable(const Checkpoint& checkpoint);

/// Computes where everything will lie; the checksums in the result are empty.
///
/// Pure: reads nothing.
///
/// @see check_packable, whose errors it has as well
/// @retval kUsage        The layout leaves a weight out or has one twice, or asks for a page size
///                       that is no power of two.
/// @retval kUnsupported  A canonical scale name is taken by another tensor, or a tensor has a name
///                       that packs reserve (kPadPrefix); a header would be too long.
Result<Manifest> lay_out_pack(const Checkpoint& checkpoint, const WeightTable& weights,
                              const PackLayout& layout, const PackOptions& options);

/// Adds up what a layout takes.
[[nodiscard]] PackSize pack_size(const Manifest& manifest);

/// Whether the drive of `target` has the space for a pack, as write_pack() asks before it begins.
///
/// @param target         Need not exist; its folder does.
/// @param reserve_bytes  To stay free besides.
/// @retval kOutput  It has not; the message has the numbers.
Result<void> check_pack_space(FileSystem& file_system, const std::filesystem::path& target,
                              const PackLayout& layout, const Manifest& manifest,
                              std::uint64_t reserve_bytes);

/// Writes a pack: `<target>.partial` is filled, synced and renamed to `target`; the manifest comes
/// last. On failure the source is untouched and `target` does not exist; `<target>.partial` is
/// removed.
///
/// The remains of an earlier run in `<target>.partial` are replaced, which is logged; anything else
/// of that name is an error, and is not touched. Memory is bounded by a few copy buffers, whatever
/// the model's size. A source file that is written to meanwhile is found by its size and time of
/// modification.
///
/// @retval kOutput       `target` exists, can't be written, or there is not enough space; or
///                       `<target>.partial` is not surely what an earlier run left.
/// @retval kLocked       Another process is writing `target`.
/// @retval kStale        The source changed while it was read.
/// @retval kInterrupted  `options.stop` was set.
Result<Manifest> write_pack(FileSystem& file_system, const Checkpoint& checkpoint,
                            const WeightTable& weights, const PackLayout& layout,
                            const std::filesystem::path& target, const PackOptions& options);

}  // namespace trash_panda::format
