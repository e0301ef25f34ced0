#include "probe_effort.h"

#include <algorithm>
#include <array>

namespace trash_panda::runtime {

namespace {

constexpr std::array<std::uint32_t, 3> kDepths = {1, 8, 32};
constexpr std::array<std::uint64_t, 4> kRequestBytes = {1 * kMiB, 2 * kMiB, 4 * kMiB, 8 * kMiB};
/// A brief probe reads in the size that streaming reads in.
constexpr std::array<std::uint64_t, 1> kBriefRequestBytes = {2 * kMiB};

/// Measuring may not be what pushes a machine into swap.
constexpr std::uint64_t kMeasuringPartOfFreeRam = 8;
constexpr std::uint64_t kMeasuringBytesMin = 8 * kMiB;

// Disk time in all: 1.2 s, 6 s, 34 s. Trials are interleaved and short rather than few and long:
// a busy moment of the machine then touches every setting a little instead of one a lot.
constexpr EffortPlan kBrief = {.depths = kDepths,
                               .request_bytes = kBriefRequestBytes,
                               .grid_rounds = 1,
                               .choice_rounds = 3,
                               .trial = Seconds(0.12),
                               .latency = Seconds(0.1),
                               .scratch_bytes = 0,
                               .scratch = Seconds(0),
                               .memory = Seconds(0.03),
                               .memory_rounds = 3,
                               .memory_bytes = 128 * kMiB};
constexpr EffortPlan kQuick = {.depths = kDepths,
                               .request_bytes = kRequestBytes,
                               .grid_rounds = 2,
                               .choice_rounds = 5,
                               .trial = Seconds(0.17),
                               .latency = Seconds(0.3),
                               .scratch_bytes = 512 * kMiB,
                               .scratch = Seconds(2),
                               .memory = Seconds(0.05),
                               .memory_rounds = 5,
                               .memory_bytes = 512 * kMiB};
constexpr EffortPlan kFull = {.depths = kDepths,
                              .request_bytes = kRequestBytes,
                              .grid_rounds = 5,
                              .choice_rounds = 9,
                              .trial = Seconds(0.4),
                              .latency = Seconds(2),
                              .scratch_bytes = 4 * kGiB,
                              .scratch = Seconds(20),
                              .memory = Seconds(0.2),
                              .memory_rounds = 9,
                              .memory_bytes = 512 * kMiB};

}  // namespace

const EffortPlan& effort_plan(ProbeEffort effort) {
  switch (effort) {
    case ProbeEffort::kBrief:
      return kBrief;
    case ProbeEffort::kQuick:
      return kQuick;
    case ProbeEffort::kFull:
      return kFull;
  }
  return kQuick;
}

std::uint64_t measuring_bytes(const plan::Hardware& hardware, const EffortPlan& effort) {
  std::uint64_t free_bytes = hardware.ram_available_bytes;
  if (hardware.cgroup_limit_bytes) {
    free_bytes =
        std::min(free_bytes, *hardware.cgroup_limit_bytes - std::min(*hardware.cgroup_limit_bytes,
                                                                     hardware.cgroup_used_bytes));
  }
  return std::clamp(free_bytes / kMeasuringPartOfFreeRam, kMeasuringBytesMin, effort.memory_bytes);
}

}  // namespace trash_panda::runtime
