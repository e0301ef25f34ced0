#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/tier.h"

namespace trash_panda::plan {

using format::Tier;

/// Where one block waits.
struct PlannedBlock {
  std::string name;  ///< "model.layers.0".
  Tier tier = Tier::kRam;
  std::uint64_t stored_bytes = 0;    ///< Its tensors in the checkpoint: tiers sum to the file.
  std::uint64_t extent_bytes = 0;    ///< Its extent in the pack: canonical scales, padded to pages.
  std::uint64_t expanded_bytes = 0;  ///< Its weights in the compute dtype.

  bool operator==(const PlannedBlock&) const = default;
};

/// A placement of one model on one machine. Plain data; plan_toml.h reads and writes it.
///
/// With VRAM to plan for (`vram_budget_bytes` > 0) base and compute slots lie in VRAM, else in RAM.
struct Plan {
  // [model]
  std::string model_path;
  std::string model_fingerprint;  ///< format::Checkpoint::fingerprint().
  std::uint64_t model_bytes = 0;  ///< All tensors, blocks and base, as stored.
  std::uint64_t tensor_count = 0;
  // [hardware]: what the budgets were derived from.
  std::uint64_t ram_total_bytes = 0;
  std::uint64_t ram_limit_bytes = 0;  ///< The smaller of RAM and the cgroup's limit.
  std::string ram_limit_source;       ///< "ram" or "cgroup".
  std::string gpu_name;               ///< Empty without a GPU.
  std::uint64_t vram_total_bytes = 0;
  // [budget]
  std::uint64_t ram_budget_bytes = 0;  ///< For RAM blocks, host slots and, without VRAM, base.
  std::uint64_t vram_budget_bytes = 0;
  std::uint64_t base_bytes = 0;  ///< Tensors outside blocks, in the compute dtype.
  std::uint64_t slot_bytes = 0;  ///< Host memory that disk blocks stream through.
  /// Memory of the compute device that a block in use takes beside its tier: where streamed blocks
  /// arrive (VRAM) and where stored weights are expanded. 0 when blocks are used in place.
  std::uint64_t compute_slot_bytes = 0;
  // [settings]
  std::string compute_dtype = "bf16";  ///< "bf16", "fp16", "fp32" or "keep".
  std::uint64_t lookahead_bytes = 0;   ///< Read ahead of need.
  // [[block]], in execution order
  std::vector<PlannedBlock> blocks;

  std::vector<std::string> warnings;  ///< Not stored: said once, when the plan is made.

  /// Bytes in the checkpoint of the blocks of a tier; for kBase, of all that is in no block.
  [[nodiscard]] std::uint64_t stored_bytes(Tier tier) const;
  /// Bytes in the pack of the blocks of a tier; for kBase `base_bytes`.
  [[nodiscard]] std::uint64_t extent_bytes(Tier tier) const;
  [[nodiscard]] std::size_t block_count(Tier tier) const;

  /// Whether VRAM was planned for.
  [[nodiscard]] bool uses_vram() const { return vram_budget_bytes > 0; }
  /// RAM that the plan takes at once, of `ram_budget_bytes`.
  [[nodiscard]] std::uint64_t ram_used_bytes() const;
  /// VRAM that the plan takes at once, of `vram_budget_bytes`.
  [[nodiscard]] std::uint64_t vram_used_bytes() const;
  /// Whether both stay within their budgets. A machine that is too small for a model still gets a
  /// plan, with a warning; a budget or an assignment of the user that can't be met is an error.
  [[nodiscard]] bool fits() const;

  bool operator==(const Plan&) const = default;
};

}  // namespace trash_panda::plan
