#pragma once

#include <filesystem>

#include "trash_panda/plan/hardware.h"

namespace trash_panda::runtime {

/// Fills the RAM and control group fields of `hardware`. The folders are parameters so that tests
/// can hand in recorded machines.
///
/// @param proc    Where procfs is: `meminfo`, `self/cgroup`.
/// @param cgroup  Where the control group filesystem is: v2, or v1 with `memory/`.
void read_memory_limits(const std::filesystem::path& proc, const std::filesystem::path& cgroup,
                        plan::Hardware& hardware);

}  // namespace trash_panda::runtime
