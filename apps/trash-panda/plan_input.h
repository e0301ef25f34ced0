#pragma once

#include <cstdint>
#include <string>

#include "trash_panda/base/error.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/plan.h"

namespace trash_panda::cli {

/// Plans and machines are some kilobytes, a block some hundred bytes: what is longer was not
/// written by this program.
inline constexpr std::uint64_t kPlanInputBytesMax = 64 * kMiB;

/// Reads a PLAN argument: a plan file, or "-" for stdin.
Result<plan::Plan> read_plan_input(const std::string& name);

/// Reads the FILE of --hw: a machine as `hwreport --json` describes it, or "-" for stdin.
Result<plan::Hardware> read_hardware_input(const std::string& name);

}  // namespace trash_panda::cli
