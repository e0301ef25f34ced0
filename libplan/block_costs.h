#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/planner.h"

#include "budgets.h"

namespace trash_panda::plan {

/// A model's blocks with what is known of their time on a machine.
struct CostedBlocks {
  std::vector<PlannedBlock> blocks;  ///< With compute_s.
  std::string compute_source;        ///< "profile", "given", "estimate"; empty: not known.
  Rates rates;                       ///< Of blocks that are not coded.
  std::optional<std::uint64_t> exponent_bytes_per_s;
};

/// Takes what planning counts with from a measured disk.
void set_disk_rate(const DiskInfo& disk, Rates& rates);

/// Takes the rates that planning counts with from a machine, and each block's compute time from
/// the profile, else from the time given, else from an estimate: each weight is read once from the
/// memory that it is computed in, which is what small batches take at least.
///
/// @param budgets  Without VRAM in them blocks are computed on the CPU, GPU or not.
/// @retval kUsage  The profile is of another number of blocks, or a time is negative.
Result<CostedBlocks> cost_blocks(const ModelSummary& model, const Hardware& hardware,
                                 const PlanRequest& request, const Budgets& budgets);

}  // namespace trash_panda::plan
