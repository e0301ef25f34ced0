#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/plan.h"
#include "trash_panda/plan/planner.h"

namespace trash_panda::plan {

/// One model of a pipeline: it runs when the one before it is done.
struct Stage {
  std::string name;
  ModelSummary model;
  PlanRequest request;
  /// The machine, with the rates of the drive that this model lies on.
  Hardware hardware;
  std::uint64_t step_count = 1;  ///< Passes that it runs for; at least 1.
  bool stays_loaded = false;     ///< Keeps its memory when it is done; else gives it back.
};

/// What of a stage is loaded while the one before it runs: its base, then its first blocks, as far
/// as there is memory beside that one, and time in which that one leaves drive and link alone.
struct Preload {
  bool has_base = false;
  std::size_t block_count = 0;    ///< First blocks, in execution order.
  std::uint64_t read_bytes = 0;   ///< From the drive.
  std::uint64_t ram_bytes = 0;    ///< Memory that it takes meanwhile.
  std::uint64_t vram_bytes = 0;   ///< The same in VRAM.
  std::optional<double> saved_s;  ///< Off the first pass; nothing where none is predicted.

  bool operator==(const Preload&) const = default;
};

struct PlannedStage {
  std::string name;
  std::uint64_t step_count = 1;
  bool stays_loaded = false;
  Plan plan;
  std::uint64_t held_ram_bytes = 0;   ///< By earlier stages that stay loaded.
  std::uint64_t held_vram_bytes = 0;  ///< The same in VRAM.
  Preload preload;                    ///< Of this stage, while the one before it runs.
  /// Most memory that is taken while it runs: its own, what is held, and the next one's preload.
  std::uint64_t ram_peak_bytes = 0;
  std::uint64_t vram_peak_bytes = 0;
  /// Time from the end of the stage before it to its own end: a first pass, with what was preloaded
  /// there already, and the other steps. Nothing where no pass is predicted.
  std::optional<double> predicted_s;
};

/// Plans each stage with the memory that the earlier ones have given back: all of it, less what
/// stages that stay loaded take.
///
/// @retval kDoesNotFit  As make_plan(); also where what stays loaded leaves a stage too little.
/// @retval kUsage       As make_plan(). Messages begin with the stage's name.
Result<std::vector<PlannedStage>> plan_stages(std::span<const Stage> stages);

}  // namespace trash_panda::plan
