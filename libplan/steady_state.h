#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
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

/// Runs passes until they repeat. Keeps its memory from run to run.
class SteadyState {
 public:
  /// Runs passes from `state` on; from any state they come to take the same time.
  ///
  /// The times of a pass are maxima of sums of those before it. So when each time is later than
  /// k passes ago by at least some amount, it will be so every k passes, and a pass takes at least
  /// that amount / k for good: which ends a run early.
  ///
  /// @param used       What the blocks keep busy in a pass.
  /// @param run_pass   `run_pass(state)` serves all blocks once.
  /// @param give_up_s  Of no interest from here on.
  /// @return Seconds of one pass; `state` is then in the steady state, at time 0. Where that is
  ///         known not to be less than `give_up_s`: some time that is neither.
  template <class RunPass>
  double run(PassState& state, const ChannelTimes& used, const RunPass& run_pass,
             double give_up_s = std::numeric_limits<double>::infinity()) {
    const double bound_s = used.bound_s();
    if (bound_s <= 0) {
      return 0;
    }
    const double tolerance_s = kStateTolerance * bound_s;
    std::array<double, kPassesMax> lengths_s = {};
    remember(state, used, 0);
    for (std::size_t pass = 1; pass <= kPassesMax; ++pass) {
      run_pass(state);
      lengths_s[pass - 1] = state.compute_free_s();
      state.shift(lengths_s[pass - 1]);
      const std::vector<double>& now = remember(state, used, pass);
      double since_s = 0;
      for (std::size_t period = 1; period <= std::min(pass, kPeriodMax); ++period) {
        since_s += lengths_s[pass - period];
        const std::vector<double>& then = states_[(pass - period) % states_.size()];
        double least_s = std::numeric_limits<double>::infinity();
        double most_s = -least_s;
        for (std::size_t at = 0; at < now.size(); ++at) {
          least_s = std::min(least_s, now[at] - then[at]);
          most_s = std::max(most_s, now[at] - then[at]);
        }
        const auto pass_count = static_cast<double>(period);
        if (least_s >= -tolerance_s && most_s <= tolerance_s) {
          return std::max(bound_s, since_s / pass_count);
        }
        const double pass_s_min = (since_s + least_s) / pass_count;
        if (pass_s_min >= give_up_s) {
          return pass_s_min;
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

 private:
  const std::vector<double>& remember(const PassState& state, const ChannelTimes& used,
                                      std::size_t pass) {
    std::vector<double>& times_s = states_[pass % states_.size()];
    times_s.clear();
    state.append_to(used, times_s);
    return times_s;
  }

  /// States of the last passes, in a ring.
  std::array<std::vector<double>, kPeriodMax + 1> states_;
};

}  // namespace trash_panda::plan
