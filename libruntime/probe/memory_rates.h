#pragma once

#include <cstddef>
#include <cstdint>

#include "trash_panda/base/progress.h"
#include "trash_panda/plan/hardware.h"

#include "probe_effort.h"

namespace trash_panda::runtime {

/// Threads that RAM is copied with when all do: at least 1.
[[nodiscard]] std::size_t memory_thread_count(const plan::Hardware& hardware);

/// Measures how fast RAM is copied and weights are expanded, by one thread and by all, and fills
/// these rates of `hardware`. What the system refuses memory or threads for stays empty.
///
/// @param memory_bytes_max  That is taken for it, at most.
void measure_memory_rates(const EffortPlan& effort, std::uint64_t memory_bytes_max, StopFlag stop,
                          plan::Hardware& hardware);

}  // namespace trash_panda::runtime
