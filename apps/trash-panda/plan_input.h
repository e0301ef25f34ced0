#pragma once

#include <cstdint>
#include <filesystem>
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

/// Whether `path` may be replaced by a plan: it is not there, is a plan, or is empty. -f must never
/// cost anyone a checkpoint, its index or whatever else a mistyped name means.
/// @retval kOutput  It is something else.
Result<void> check_replaceable_plan(const std::filesystem::path& path);

/// Reads the FILE of --hw: a machine as `hwreport --json` describes it, or "-" for stdin.
Result<plan::Hardware> read_hardware_input(const std::string& name);

}  // namespace trash_panda::cli
