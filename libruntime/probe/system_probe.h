#pragma once

#include <filesystem>

#include "trash_panda/plan/hardware.h"

namespace trash_panda::runtime {

/// Fills `system`, `cpu`, and the limits of locked and huge pages of `hardware`, less what needs
/// measuring or hwloc. Never fails: what can't be read stays empty.
///
/// @param root  Where /proc, /sys, /etc and /run are; a parameter so that tests can hand in
///              recorded machines.
void read_system(const std::filesystem::path& root, plan::Hardware& hardware);

/// Processors that this process may use: of its affinity mask, and of its control group's quota.
[[nodiscard]] std::uint64_t usable_thread_count(const std::filesystem::path& cgroup);

}  // namespace trash_panda::runtime
