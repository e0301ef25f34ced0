#pragma once

#include <string>
#include <string_view>

#include "trash_panda/plan/plan.h"

namespace trash_panda::cli {

/// How a trace begins, so that -f replaces nothing else.
inline constexpr std::string_view kTraceStart = R"({"displayTimeUnit":"ms","traceEvents":[)";

/// The simulated pass of a plan in the steady state as Chrome's trace JSON, which Perfetto shows
/// too: a lane each for disk, decode, link and compute, and one for stalls with their cause.
///
/// Times count from the first read of what the pass uses: reads run ahead of their pass.
///
/// @param plan  With all rates that it needs. @see plan::missing_rates()
[[nodiscard]] std::string pass_trace(const plan::Plan& plan);

}  // namespace trash_panda::cli
