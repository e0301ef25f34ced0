#pragma once

#include <cstdint>
#include <optional>
#include <span>
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
#include "trash_panda/plan/plan_request.h"

namespace trash_panda::plan {

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

/// The request of a plan that was read from a file, with what was changed there by hand since: a
/// budget that its inputs do not give counts as asked for, and so does a tier that is not as
/// planned. On the same machine and model it gives the same plan.
[[nodiscard]] PlanRequest repeated_request(const Plan& plan);

/// Reads `TIER=SEL`, such as "disk=0-7,12" or "gpu=blocks.*"; the selector is not looked at.
/// @retval kUsage  No such form, or no tier that blocks can have.
Result<std::pair<Tier, std::string>> parse_assignment(std::string_view text);

/// Blocks that a selector means: `0-7,12,-1` by index, or a glob over names.
/// @retval kUsage  Matches nothing, or an index is out of range.
Result<std::vector<std::size_t>> select_blocks(std::string_view selector,
                                               const std::vector<PlannedBlock>& blocks);

/// The shortest selector of these blocks by index: "0-7,12".
/// @param indexes  In rising order.
[[nodiscard]] std::string block_selector(std::span<const std::size_t> indexes);

}  // namespace trash_panda::plan
