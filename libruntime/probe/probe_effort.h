#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "trash_panda/base/units.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/runtime/probe.h"

namespace trash_panda::runtime {

using Seconds = std::chrono::duration<double>;

/// How long each measurement takes and how often it is repeated.
struct EffortPlan {
  std::span<const std::uint32_t> depths;
  std::span<const std::uint64_t> request_bytes;
  std::uint32_t grid_rounds;    ///< Of all settings, interleaved.
  std::uint32_t choice_rounds;  ///< Of the chosen setting, for the rate that counts.
  Seconds trial;                ///< Of one setting in one round.
  Seconds latency;
  std::uint64_t scratch_bytes;  ///< Of a file written where there is none to read.
  Seconds scratch;
  Seconds memory;  ///< Of each measurement of RAM, CPU and link.
  std::uint32_t memory_rounds;
  std::uint64_t memory_bytes;  ///< Taken for measuring, where there is plenty.
};

[[nodiscard]] const EffortPlan& effort_plan(ProbeEffort effort);

/// RAM that measuring may take: a part of what is free, at most what `effort` asks for.
[[nodiscard]] std::uint64_t measuring_bytes(const plan::Hardware& hardware,
                                            const EffortPlan& effort);

}  // namespace trash_panda::runtime
