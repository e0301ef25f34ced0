#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/block_groups.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/plan.h"

namespace trash_panda::plan {

enum class PlacementMethod {
  kCost,    ///< The shortest simulated pass, where enough was measured to simulate one.
  kGreedy,  ///< As the earlier Python library placed blocks.
};

/// What the user asked for; an empty optional means automatic.
struct PlanRequest {
  std::size_t gpu_index = 0;  ///< Into Hardware::gpus.
  /// Exact when given. Without a GPU it plans for one elsewhere, with a warning.
  std::optional<std::uint64_t> max_vram_bytes;
  std::uint64_t headroom_vram_bytes = 1'500'000'000;  ///< Kept free, activations included.
  /// When given, activations plus the larger of 5 % and 0.5 GiB are kept free instead.
  std::optional<std::uint64_t> activation_vram_bytes;
  std::optional<std::uint64_t> max_ram_bytes;       ///< Exact when given, within the limit.
  std::optional<std::uint64_t> min_free_ram_bytes;  ///< Automatic: 8 % of RAM within 1–4 GiB.
  bool allow_disk = true;
  std::optional<std::uint64_t> resident_blocks;  ///< Exactly so many blocks in VRAM.
  /// `TIER=SEL` as typed, in order; later ones win. SEL: `0-7,12,-1` or a glob over block names.
  std::vector<std::pair<Tier, std::string>> assignments;
  std::optional<std::uint64_t> lookahead_blocks;  ///< Automatic: 2, or 1 where RAM is short.
  std::string compute_dtype = "bf16";
  PlacementMethod placement = PlacementMethod::kCost;
  std::uint64_t kv_cache_bytes = 0;  ///< Kept free on the compute device beside the weights.
  /// Time of all blocks' computation in a pass, without expansion; shared out by their weights.
  std::optional<double> compute_s;
  /// The same block by block, measured; in execution order.
  std::optional<std::vector<double>> profile_s;
  /// Forms beside raw that a pack of the plan can hold. None while packs are written raw only: a
  /// plan does not promise what `repack` can't keep.
  std::vector<StorageForm> forms;
};

/// What of a block's stored bytes codecs can make smaller.
struct BlockContent {
  std::uint64_t bf16_bytes = 0;
  std::uint64_t fp8_bytes = 0;
};

/// What a model needs, as the planner sees it: no files, no names beyond the blocks'.
struct ModelSummary {
  std::string path;
  std::string fingerprint;
  std::uint64_t total_bytes = 0;
  std::uint64_t tensor_count = 0;
  std::vector<PlannedBlock> blocks;    ///< In execution order; tiers are ignored.
  std::vector<BlockContent> contents;  ///< One per block; none: nothing that can be coded.
  std::uint64_t base_stored_bytes = 0;
  std::uint64_t base_expanded_bytes = 0;
  /// The largest block in the compute dtype, of those with a weight that has to be expanded; 0 when
  /// every block is used as it is stored.
  std::uint64_t expansion_bytes_max = 0;
};

/// Reads the name of a compute dtype: "bf16", "fp16" or "fp32"; nothing for "keep", which leaves
/// every tensor as it is stored. @retval kUsage  Another name.
Result<std::optional<format::Dtype>> parse_compute_dtype(std::string_view name);

/// Adds up blocks and base in stored and expanded form.
///
/// @param weights        Of the same checkpoint as `blocks`, which index its tensors.
/// @param compute_dtype  A name that parse_compute_dtype() knows; another one counts as "keep",
///                       and make_plan() refuses it.
[[nodiscard]] ModelSummary summarize_model(const format::Checkpoint& checkpoint,
                                           const format::WeightTable& weights,
                                           const BlockMap& blocks, std::string_view compute_dtype);

/// Decides where each block waits. Pure: the same inputs give the same plan.
///
/// Budgets come from totals less reserves, rounded down to 256 MiB unless given by the user.
/// Where the machine's rates are known, tiers, slots and storage forms are those of the shortest
/// simulated pass, never longer than that of simpler placements, and the plan has a prediction.
/// Else streamed blocks are spread evenly between resident ones, disk blocks between RAM ones. When
/// everything fits, nothing clever is done.
///
/// A machine whose automatic budgets can't hold the model still gets a plan, which says so in its
/// warnings and by Plan::fits().
///
/// @retval kDoesNotFit  A budget, a number of resident blocks or an assignment that the user gave
///                      can't be met; the message has the numbers and the hint the flag that helps.
/// @retval kUsage       A selector matches no block, or requests contradict each other.
Result<Plan> make_plan(const ModelSummary& model, const Hardware& hardware,
                       const PlanRequest& request);

/// Blocks that a selector means: `0-7,12,-1` by index, or a glob over names.
/// @retval kUsage  Matches nothing, or an index is out of range.
Result<std::vector<std::size_t>> select_blocks(std::string_view selector,
                                               const std::vector<PlannedBlock>& blocks);

}  // namespace trash_panda::plan
