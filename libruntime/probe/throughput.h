#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "trash_panda/base/progress.h"

#include "probe_effort.h"

namespace trash_panda::runtime {

/// Runs `work(thread_index)` again and again on each of `thread_count` threads for `duration`.
///
/// @param work  Does one piece, some milliseconds of it, and returns its bytes.
/// @return Bytes per second of all threads together; nothing when the system refuses a thread.
[[nodiscard]] std::optional<double> throughput(
    std::size_t thread_count, Seconds duration,
    const std::function<std::uint64_t(std::size_t thread_index)>& work);

/// Median of `effort.memory_rounds` such runs after one that warms up; nothing when `stop` is set.
[[nodiscard]] std::optional<std::uint64_t> median_throughput(
    std::size_t thread_count, const EffortPlan& effort, StopFlag stop,
    const std::function<std::uint64_t(std::size_t thread_index)>& work);

}  // namespace trash_panda::runtime
