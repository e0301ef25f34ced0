#pragma once

#include <string>

#include "plan_report.h"

namespace trash_panda::cli {

/// "83.2 µs", "230 ms", "1.63 s", "12.3 s", "4 min 5 s".
[[nodiscard]] std::string format_seconds(double seconds);

/// What a tier costs in each step: "0.27 s read, 0.07 s copy"; empty where it is not known.
[[nodiscard]] std::string tier_step(const plan::Plan& plan, plan::Tier tier);

/// The predicted step with its bound and what more memory would bring; empty without one.
[[nodiscard]] std::string prediction_lines(const PlanReport& report);

}  // namespace trash_panda::cli
