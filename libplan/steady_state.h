#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include "pass_state.h"

namespace trash_panda::plan {

/// Passes that are simulated at most. What has not begun to repeat by then drifts by less than the
/// lead that slots can hold, over this many passes.
inline constexpr std::size_t kPassesMax = 48;
/// Repetitions over up to so many passes are recognised.
inline constexpr std::size_t kPeriodMax = 4;
/// Two states are the same when no time differs by more than this part of a pass: rounding.
inline constexpr double kStateTolerance = 1e-12;

/// Runs passes until they repeat. `run_pass(state)` serves all blocks once, `used` is what they
/// keep busy in a pass.
///
/// @return Seconds of one pass; `state` is then in the steady state, at time 0.
template <class RunPass>
double run_to_steady_state(PassState& state, const ChannelTimes& used, const RunPass& run_pass) {
  const double bound_s = used.bound_s();
  if (bound_s <= 0) {
    return 0;
  }
  // States and lengths of the last passes, newest last, in a ring.
  std::array<std::vector<double>, kPeriodMax + 1> states;
  std::array<double, kPassesMax> lengths_s = {};
  for (std::size_t pass = 0; pass < kPassesMax; ++pass) {
    run_pass(state);
    lengths_s[pass] = state.compute_free_s();
    state.shift(lengths_s[pass]);
    std::vector<double>& now = states[pass % states.size()];
    now.clear();
    state.append_to(used, now);
    double since_s = 0;
    for (std::size_t period = 1; period <= std::min(pass, kPeriodMax); ++period) {
      since_s += lengths_s[pass - period + 1];
      const std::vector<double>& then = states[(pass - period) % states.size()];
      const double tolerance_s = kStateTolerance * bound_s;
      if (std::ranges::equal(now, then, [tolerance_s](double a, double b) {
            return std::abs(a - b) <= tolerance_s;
          })) {
        return std::max(bound_s, since_s / static_cast<double>(period));
      }
    }
  }
  constexpr std::size_t kLatePasses = kPassesMax - kPassesMax / 2;
  double late_s = 0;
  for (std::size_t pass = kPassesMax - kLatePasses; pass < kPassesMax; ++pass) {
    late_s += lengths_s[pass];
  }
  return std::max(bound_s, late_s / static_cast<double>(kLatePasses));
}

}  // namespace trash_panda::plan
