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
  std::uint64_t stored_bytes = 0;    ///< As it lies in the pack, scales included.
  std::uint64_t expanded_bytes = 0;  ///< In the compute dtype.
};

/// A placement of one model on one machine. Plain data; plan_toml.h reads and writes it.
struct Plan {
  // [model]
  std::string model_path;
  std::string model_fingerprint;  ///< format::Checkpoint::fingerprint().
  std::uint64_t model_bytes = 0;
  std::uint64_t tensor_count = 0;
  // [hardware]: what the budgets were derived from.
  std::uint64_t ram_total_bytes = 0;
  std::uint64_t ram_limit_bytes = 0;  ///< The smaller of RAM and the cgroup's limit.
  std::string ram_limit_source;       ///< "ram" or "cgroup".
  std::string gpu_name;               ///< Empty without a GPU.
  std::uint64_t vram_total_bytes = 0;
  // [budget]
  std::uint64_t ram_budget_bytes = 0;   ///< For blocks, base (without a GPU) and slots.
  std::uint64_t vram_budget_bytes = 0;
  std::uint64_t base_bytes = 0;  ///< Tensors outside blocks, in the compute dtype.
  std::uint64_t slot_bytes = 0;  ///< Host memory that disk blocks stream through.
  // [settings]
  std::string compute_dtype = "bf16";  ///< "bf16", "fp16", "fp32" or "keep".
  std::uint64_t lookahead_bytes = 0;   ///< Read ahead of need.
  // [[block]], in execution order
  std::vector<PlannedBlock> blocks;

  std::vector<std::string> warnings;  ///< Not stored: said once, when the plan is made.

  [[nodiscard]] std::uint64_t stored_bytes(Tier tier) const;
  [[nodiscard]] std::size_t block_count(Tier tier) const;
};

}  // namespace trash_panda::plan
