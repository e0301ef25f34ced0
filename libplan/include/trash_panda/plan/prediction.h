#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/plan.h"
#include "trash_panda/plan/simulator.h"

namespace trash_panda::plan {

/// Extents are read, decoded and copied in pieces of about this size: the largest request that
/// drives gain from, and far below what may be in flight to a GPU.
inline constexpr std::uint64_t kChunkBytes = 8'388'608;

/// Seconds to move `bytes`; 0 while the rate is not known. @see missing_rates()
[[nodiscard]] double transfer_s(std::uint64_t bytes,
                                const std::optional<std::uint64_t>& bytes_per_s);

/// The rate at which a plan's blocks are expanded: there is one for all. That of the slower way,
/// where some are decoded and some converted; nothing where none of what they need was measured.
[[nodiscard]] std::optional<std::uint64_t> expansion_bytes_per_s(
    std::span<const PlannedBlock> blocks, const ExpandRates& rates);

/// What a block costs in each channel, in its tier and form. A rate that is not known counts as
/// infinite: @see missing_rates()
///
/// @param has_link  Blocks are computed on a GPU.
[[nodiscard]] BlockCost block_cost(const PlannedBlock& block, const Rates& rates, bool has_link);

/// The pass that a plan's blocks, slots and rates make.
[[nodiscard]] PassModel pass_model(const Plan& plan);

/// What of a plan's weights is in memory before its first pass: read by then, and where the place
/// is kGpu, copied too.
struct LoadedAhead {
  std::optional<Tier> base;  ///< kGpu, kRam, or nothing.
  std::vector<Tier> blocks;  ///< Of the first blocks, in execution order: kGpu or kRam.
};

/// Everything that is read once, as it happens in the first pass: every block comes from the disk,
/// those of RAM and VRAM are kept.
[[nodiscard]] PassModel first_pass_model(const Plan& plan, const LoadedAhead& loaded = {});

/// Time from a cold start, or from what is loaded, to the end of the first pass, base tensors
/// included; nothing while the disk's rate or one that the plan needs is not known.
[[nodiscard]] std::optional<double> predict_first_pass_s(const Plan& plan,
                                                         const LoadedAhead& loaded = {});

/// Channels that the plan's blocks need and whose rate is not known.
[[nodiscard]] std::vector<Channel> missing_rates(const Plan& plan);

/// Simulates the plan's pass, the first one from a cold start too; nothing while a rate that it
/// needs is not known, or when nothing in it takes time.
[[nodiscard]] std::optional<Prediction> predict(const Plan& plan);

}  // namespace trash_panda::plan
