#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/base/log.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// File that is made first in every staging folder and removed last, when the pack has its final
/// name: what tells our left-overs from a folder that only has such a name. It holds the journal.
inline constexpr std::string_view kStagingMarkName = ".trash-panda-partial";

/// Which tensors of an extent are stored in the exponent code, if they are large enough.
enum class CodedFloats {
  kNone,
  kBf16,  ///< They shrink by a third.
  kAll,   ///< F32, too, which shrink by a sixth.
};

/// What becomes of an extent's large tensors that are in no exponent code.
enum class CodedRest {
  kNone,
  kZstd,  ///< They are stored in the zstd code, which takes 0.8 of the bytes of fp8.
};

/// One extent to write: which weights go in, and where it waits.
struct ExtentLayout {
  std::string name;
  Tier tier;
  std::vector<std::size_t> weights;  ///< Into WeightTable::weights; each in exactly one extent.
  CodedFloats coded = CodedFloats::kNone;
  CodedRest rest = CodedRest::kNone;
};

/// What a weight is stored as, where that is not what the source has. It has no scale there.
struct WeightConversion {
  Dtype dtype;  ///< BF16, F16 or F8_E4M3.
  /// F32 whose values are all BF16: the source's bytes can be made again. All others are rounded.
  bool is_exact = false;
  std::optional<float> scale = {};  ///< Of the whole tensor, which F8_E4M3 has: value / scale.

  bool operator==(const WeightConversion&) const = default;
};

/// What to pack, in the order of the manifest: base extents, then blocks in execution order.
struct PackLayout {
  std::vector<ExtentLayout> extents;
  /// By index into WeightTable::weights.
  std::map<std::size_t, WeightConversion> conversions = {};
  /// What they were chosen by, besides the files. @see interrupted_conversions
  std::string conversions_key = {};
  std::map<std::string, std::string> aliases;
  std::string plan_toml;  ///< Stored as plan.toml.
};

/// What becomes of `<target>.partial` that an earlier run left.
enum class ResumeMode {
  kIfSame,  ///< Taken on with where checkpoint, layout and plan are the same; else started anew.
  kAlways,  ///< Taken on with, or an error says why it can't be.
  kNever,   ///< Started anew.
};

struct PackOptions {
  std::uint64_t page_bytes = 4096;              ///< Extents start on a multiple of this.
  std::uint64_t reserve_bytes = 1'000'000'000;  ///< Space to leave free on the target drive.
  std::uint64_t write_bytes_per_s_max = 0;      ///< Slows writing, and so reading, down; 0: never.
  /// Finished extents are synced and entered in the journal together once they are this long:
  /// about what is done again after a power cut, besides the extent that was being written.
  std::uint64_t journal_bytes = 268'435'456;
  ResumeMode resume = ResumeMode::kIfSame;
  /// Of shards and of large tensors of the source. Small tensors and headers are never direct.
  DirectUse direct = DirectUse::kAuto;
  /// Where the shard of the disk tier goes, another drive say, as `<prefix>.<tag>.<shard name>`;
  /// the pack then holds a link to it. Absolute; empty: it goes where the others do.
  /// @see linked_shard.h
  std::filesystem::path disk_prefix = {};
  std::string generator;
  ProgressCallback progress;  ///< May be empty.
  StopFlag stop = nullptr;
  Logger log = silent_logger();
};

/// What a pack takes.
struct PackSize {
  std::uint64_t total_bytes;  ///< All shards, with headers and padding.
  std::map<Tier, std::uint64_t> tier_bytes;
};

/// Whether packs can hold a checkpoint of this kind, with these names. Others can be looked at and
/// planned for.
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

/// Adds up what a layout takes. Of extents that are still to be coded, an estimate.
[[nodiscard]] PackSize pack_size(const Manifest& manifest);

/// What a pack is still to take on one drive.
struct DriveNeed {
  std::filesystem::path folder;  ///< On it; is there.
  std::uint64_t needed_bytes = 0;
};

/// The drive of `target`, and that of `options.disk_prefix` if it is another one. What an earlier
/// run left there counts as taken.
[[nodiscard]] std::vector<DriveNeed> pack_drive_needs(const std::filesystem::path& target,
                                                      const PackLayout& layout,
                                                      const Manifest& manifest,
                                                      const PackOptions& options);

/// Whether the drives of `target` and of `options.disk_prefix` have the space for a pack, as
/// write_pack() asks before it begins.
///
/// @param target   Need not exist; its folder does.
/// @param options  `reserve_bytes` are to stay free besides.
/// @retval kOutput  One of them has not; the message has the numbers.
Result<void> check_pack_space(FileSystem& file_system, const std::filesystem::path& target,
                              const PackLayout& layout, const Manifest& manifest,
                              const PackOptions& options);

/// Writes a pack: `<target>.partial` is filled, synced and renamed to `target`; the manifest comes
/// last. On failure the source is untouched and `target` does not exist. `<target>.partial` stays
/// if a later run can take on with it (see pack_can_resume()), and is removed otherwise.
///
/// A run that takes on with it ends with the same bytes as an undisturbed one, and makes no
/// finished extent again but the last one, whose bytes in `<target>.partial` are compared with its
/// checksum and with the source. What it does with the remains of an earlier run is logged;
/// anything else of that name is an error, and is not touched. Memory is bounded by a few buffers,
/// whatever the model's size. Files are read and written past the page cache as `options.direct`
/// says. A source file that is written to or replaced meanwhile is found by its inode, its size and
/// its times of modification and of change.
///
/// @retval kOutput       `target` exists, can't be written, or there is not enough space; or
///                       `<target>.partial` is not surely what an earlier run left; or O_DIRECT is
///                       asked for and refused.
/// @retval kUnsupported  O_DIRECT is asked for, and refused for the source.
/// @retval kLocked       Another process is writing `target`.
/// @retval kStale        The source changed while it was read (such as that a conversion is no
/// longer
///                       exact), or, with ResumeMode::kAlways, since
///                       `<target>.partial` was begun.
/// @retval kInterrupted  `options.stop` was set.
Result<Manifest> write_pack(FileSystem& file_system, const Checkpoint& checkpoint,
                            const WeightTable& weights, const PackLayout& layout,
                            const std::filesystem::path& target, const PackOptions& options);

/// What a pack is to be for instead.
struct PackRetiering {
  std::vector<Tier> tiers;  ///< One per extent of the manifest; that of base extents is kBase.
  std::string plan_toml;
};

/// Makes another pack of one, whose extents have other tiers. No weight is read or moved: a tier is
/// a hint of the manifest, so manifest and plan are written anew, and the shards get a second name.
/// The headers of all shards are read and compared before the new pack gets its name.
///
/// Works in `<target>.partial`, which is renamed at the end, and removed on failure.
///
/// @param target  On the filesystem of `pack`.
/// @retval kUsage   The number of tiers is not that of the extents, or a base extent is to be
///                  another tier's, or the other way round.
/// @retval kOutput  `target` exists or can't be written, or the filesystem has no hard links.
/// @retval kMismatch  A shard's header is not what the manifest says.
/// @retval kCorrupt, kMissing  As read_manifest() and verify_pack().
Result<Manifest> retier_pack(FileSystem& file_system, const std::filesystem::path& pack,
                             const std::filesystem::path& target, const PackRetiering& retiering,
                             const Logger& log);

/// Where write_pack() works before `target` is complete: `<target>.partial`.
[[nodiscard]] std::filesystem::path partial_pack_path(const std::filesystem::path& target);

/// Whether `<target>.partial` holds finished extents of a pack, whose plan.toml is there too.
[[nodiscard]] bool pack_can_resume(const std::filesystem::path& target);

/// The conversions that the run had which left `<target>.partial`: finding them may take as long as
/// reading the checkpoint does. Nothing, where it can't be taken on with, chose them by another
/// `key`, or of other files than these, or of these before someone changed them.
[[nodiscard]] std::optional<std::map<std::size_t, WeightConversion>> interrupted_conversions(
    const std::filesystem::path& target, const Checkpoint& checkpoint, std::string_view key);

}  // namespace trash_panda::format
