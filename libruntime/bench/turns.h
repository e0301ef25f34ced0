#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/runtime/bench.h"

#include "probe/memory_work.h"
#include "probe/probe_effort.h"

namespace trash_panda::runtime {

/// Of one turn of RAM, CPU or link: some hundred pieces of work.
inline constexpr Seconds kMemoryTurn{0.1};

/// What takes turns with others.
struct Turn {
  std::function<Result<double>()> measure;  ///< Bytes per second.
  std::vector<double>* bytes_per_s;         ///< Gets one for each round.
};

enum class WarmUp { kRound, kNone };

/// Lets each take one turn a round, in the reverse order in every second one.
///
/// @param warm_up  Whether there is a round before that does not count.
/// @return The first error of a turn. @retval kInterrupted  BenchOptions::stop was set.
Result<void> take_turns(std::span<const Turn> turns, WarmUp warm_up, const BenchOptions& options);

/// A turn of work on threads, for kMemoryTurn.
[[nodiscard]] std::function<Result<double>()> work_turn(std::size_t thread_count, ThreadWork work);

/// Takes turns and puts the line, which has the names, into the report.
Result<void> compare(BenchLine line, std::function<Result<double>()> measured,
                     std::function<Result<double>()> limit, const BenchOptions& options,
                     BenchReport& report);

/// "direct", or what it is instead.
[[nodiscard]] std::string_view read_mode_name(ReadMode mode);

/// @retval kInterrupted  It was set.
Result<void> check_stop(StopFlag stop);

/// Calls BenchOptions::on_step.
void announce(const BenchOptions& options, std::string_view step);

}  // namespace trash_panda::runtime
