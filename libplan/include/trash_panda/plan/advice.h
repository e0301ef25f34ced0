#pragma once

#include <cstdint>
#include <optional>

#include "trash_panda/plan/planner.h"

namespace trash_panda::plan {

/// What more memory would bring.
struct MemoryAdvice {
  std::uint64_t more_bytes = 0;
  double pass_s = 0;
};

/// Plans again with RAM for some of one, two, four… more blocks.
///
/// @return The least more RAM that makes the predicted pass at least 5 % shorter; nothing when the
///         plan has no prediction or RAM would not help.
[[nodiscard]] std::optional<MemoryAdvice> advise_more_ram(const ModelSummary& model,
                                                          const Hardware& hardware,
                                                          const PlanRequest& request,
                                                          const Plan& plan);

/// The same with more VRAM, for a plan that streams to a GPU.
[[nodiscard]] std::optional<MemoryAdvice> advise_more_vram(const ModelSummary& model,
                                                           const Hardware& hardware,
                                                           const PlanRequest& request,
                                                           const Plan& plan);

}  // namespace trash_panda::plan
