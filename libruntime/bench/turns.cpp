#include "bench/turns.h"

#include <array>
#include <optional>

#include "probe/throughput.h"

namespace trash_panda::runtime {

Result<void> check_stop(StopFlag stop) {
  if (stop != nullptr && *stop) {
    return std::unexpected(Error(ErrorCode::kInterrupted, "measuring was stopped"));
  }
  return {};
}

void announce(const BenchOptions& options, std::string_view step) {
  if (options.on_step) {
    options.on_step(step);
  }
}

std::string_view read_mode_name(ReadMode mode) {
  return mode == ReadMode::kDirect ? "direct" : "through the page cache";
}

Result<void> take_turns(std::span<const Turn> turns, WarmUp warm_up, const BenchOptions& options) {
  for (std::uint32_t round = warm_up == WarmUp::kRound ? 0 : 1; round <= options.round_count;
       ++round) {
    for (std::size_t at = 0; at < turns.size(); ++at) {
      const Turn& turn = turns[round % 2 == 0 ? at : turns.size() - 1 - at];
      TP_RETURN_IF_ERROR(check_stop(options.stop));
      TP_ASSIGN_OR_RETURN(const double bytes_per_s, turn.measure());
      if (round != 0) {
        turn.bytes_per_s->push_back(bytes_per_s);
      }
    }
  }
  return {};
}

std::function<Result<double>()> work_turn(std::size_t thread_count, ThreadWork work) {
  return [thread_count, work = std::move(work)]() -> Result<double> {
    const std::optional<double> bytes_per_s = throughput(thread_count, kMemoryTurn, work);
    if (!bytes_per_s) {
      return std::unexpected(Error(ErrorCode::kFailed, "the system refuses threads to measure"));
    }
    return *bytes_per_s;
  };
}

Result<void> compare(BenchLine line, std::function<Result<double>()> measured,
                     std::function<Result<double>()> limit, const BenchOptions& options,
                     BenchReport& report) {
  TP_ASSERT(line.limit);
  const std::array turns = {
      Turn{.measure = std::move(measured), .bytes_per_s = &line.measured.bytes_per_s},
      Turn{.measure = std::move(limit), .bytes_per_s = &line.limit->bytes_per_s}};
  TP_RETURN_IF_ERROR(take_turns(turns, WarmUp::kRound, options));
  report.lines.push_back(std::move(line));
  return {};
}

}  // namespace trash_panda::runtime
