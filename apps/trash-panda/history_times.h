#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "run_history.h"

namespace trash_panda::cli {

/// Seconds by what they went into: kinds of spans, or causes of stalls.
using SecondsByName = std::map<std::string, double, std::less<>>;

[[nodiscard]] double seconds_of(const SecondsByName& seconds, std::string_view name);
[[nodiscard]] double sum_of(const SecondsByName& seconds);
/// The name with the most seconds; empty: there are none.
[[nodiscard]] std::string longest_of(const SecondsByName& seconds);

/// A time in which nothing was computed, because the block was not ready.
struct Stall {
  std::string_view block;
  std::uint64_t pass = 0;
  double begin_s = 0;
  double end_s = 0;
  /// "read", "decode", "copy" or "expand"; the latter also where the caller did it himself.
  std::string_view cause;
};

/// Where the time of one pass went.
struct PassTimes {
  const HistoryPass* pass = nullptr;
  SecondsByName busy_s;    ///< By kind; what runs beside each other counts twice.
  SecondsByName stalls_s;  ///< By cause.
  /// The rest: in the model, outside of its blocks.
  [[nodiscard]] double other_s() const;
};

/// Typical times of one block: medians over the passes after the first, in which it has any; of the
/// first, where there is no other.
struct BlockTimes {
  const HistoryBlock* block = nullptr;
  SecondsByName busy_s;
  double stall_s = 0;                  ///< Mean over the same passes: most stalls hit few of them.
  std::string stall_cause;             ///< Of most of that.
  const PlannedTimes* plan = nullptr;  ///< Null: nothing is predicted of it.
};

struct HistoryTimes {
  std::vector<Stall> stalls;
  std::vector<PassTimes> passes;
  std::vector<BlockTimes> blocks;
  /// Medians over the passes after the first, or of the first.
  double pass_s = 0;
  double other_s = 0;
  SecondsByName busy_s;
  SecondsByName stalls_s;
  double read_bytes = 0;
};

/// @param history  Has a pass, and outlives the result.
[[nodiscard]] HistoryTimes history_times(const RunHistory& history);

}  // namespace trash_panda::cli
