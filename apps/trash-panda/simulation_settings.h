#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/plan.h"

namespace trash_panda::cli {

/// A plan with some of what its prediction counts with replaced.
struct SimulationCase {
  std::vector<std::pair<std::string, std::string>> settings;  ///< Key and value as typed.
  plan::Plan plan;
};

/// Replaces a plan's rates by those of another machine; what was not measured there is kept.
void use_hardware(const plan::Hardware& hardware, plan::Plan& plan);

/// One case for every combination of the values of `KEY=V[,V…]`, the last key changing fastest; the
/// plan itself without any.
///
/// @retval kUsage  An unknown key, with the nearest one, or a value that it can't take.
Result<std::vector<SimulationCase>> list_simulation_cases(
    const plan::Plan& plan, const std::vector<std::string>& assignments);

}  // namespace trash_panda::cli
