#include "history_times.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

namespace trash_panda::cli {

namespace {

/// Times are whole microseconds.
constexpr double kSameTime_s = 2.5e-6;
/// What a call takes that finds everything ready; no stall is shorter.
constexpr double kCall_s = 20e-6;

double median_or_zero(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

bool is_making(std::string_view kind) {
  return kind == "decode" || kind == "expand";
}

/// Waits, and what the caller made before it computed.
std::vector<Stall> find_stalls(const RunHistory& history) {
  std::vector<Stall> stalls;
  using Use = std::pair<std::uint64_t, std::string_view>;  // Pass and block.
  std::map<Use, const HistorySpan*> makings;
  std::set<Use> made_ahead;
  for (const HistorySpan& span : history.spans) {
    const Use use(span.pass, span.block);
    const auto add = [&](const HistorySpan& time, std::string_view cause) {
      if (time.duration_s() > kCall_s) {
        stalls.push_back({span.block, span.pass, time.begin_s, time.end_s, cause});
      }
    };
    if (span.kind == "wait") {
      add(span, span.cause.empty() ? "read" : std::string_view(span.cause));
      if (is_making(span.cause)) {
        made_ahead.insert(use);
      }
    } else if (is_making(span.kind)) {
      makings[use] = &span;
    } else if (span.kind == "compute") {
      const auto making = makings.find(use);
      if (making != makings.end() && !made_ahead.contains(use) &&
          std::abs(making->second->end_s - span.begin_s) <= kSameTime_s) {
        add(*making->second, making->second->kind);
      }
    }
  }
  return stalls;
}

/// Medians by name over all names that occur; what misses one has none of it.
SecondsByName medians_of(const std::vector<const SecondsByName*>& all) {
  std::map<std::string, std::vector<double>, std::less<>> values;
  for (const SecondsByName* seconds : all) {
    for (const auto& [name, value] : *seconds) {
      values[name];
    }
  }
  SecondsByName medians;
  for (auto& [name, list] : values) {
    for (const SecondsByName* seconds : all) {
      list.push_back(seconds_of(*seconds, name));
    }
    medians[name] = median_or_zero(std::move(list));
  }
  return medians;
}

/// Adds the typical times of each block.
void add_blocks(const RunHistory& history, std::uint64_t first_pass, HistoryTimes& times) {
  std::map<std::string_view, std::map<std::uint64_t, SecondsByName>> busy;
  for (const HistorySpan& span : history.spans) {
    if (span.kind != "wait") {
      busy[span.block][span.pass][span.kind] += span.duration_s();
    }
  }
  std::map<std::string_view, SecondsByName> stalls;
  for (const Stall& stall : times.stalls) {
    if (stall.pass >= first_pass) {
      stalls[stall.block][std::string(stall.cause)] += stall.end_s - stall.begin_s;
    }
  }
  std::map<std::string_view, const PlannedTimes*> planned;
  if (history.plan) {
    for (const PlannedTimes& block : history.plan->blocks) {
      planned.emplace(block.name, &block);
    }
  }
  const auto pass_count = static_cast<double>(std::ranges::count_if(
      history.passes, [&](const HistoryPass& pass) { return pass.pass >= first_pass; }));
  for (const HistoryBlock& block : history.blocks) {
    BlockTimes& of_block = times.blocks.emplace_back();
    of_block.block = &block;
    std::vector<const SecondsByName*> passes;
    for (const auto& [pass, seconds] : busy[block.name]) {
      if (pass >= first_pass) {
        passes.push_back(&seconds);
      }
    }
    of_block.busy_s = medians_of(passes);
    const SecondsByName& stalled = stalls[block.name];
    of_block.stall_s = sum_of(stalled) / std::max(pass_count, 1.0);
    of_block.stall_cause = longest_of(stalled);
    const auto plan = planned.find(block.name);
    of_block.plan = plan == planned.end() ? nullptr : plan->second;
  }
}

}  // namespace

double seconds_of(const SecondsByName& seconds, std::string_view name) {
  const auto found = seconds.find(name);
  return found == seconds.end() ? 0.0 : found->second;
}

double sum_of(const SecondsByName& seconds) {
  double sum = 0;
  for (const auto& [name, value] : seconds) {
    sum += value;
  }
  return sum;
}

std::string longest_of(const SecondsByName& seconds) {
  const auto longest =
      std::ranges::max_element(seconds, {}, [](const auto& entry) { return entry.second; });
  return longest == seconds.end() || longest->second <= 0 ? std::string() : longest->first;
}

double PassTimes::other_s() const {
  return std::max(0.0, pass->duration_s() - seconds_of(busy_s, "compute") - sum_of(stalls_s));
}

HistoryTimes history_times(const RunHistory& history) {
  HistoryTimes times;
  times.stalls = find_stalls(history);
  std::map<std::uint64_t, std::size_t> by_number;
  for (const HistoryPass& pass : history.passes) {
    by_number.emplace(pass.pass, times.passes.size());
    times.passes.emplace_back().pass = &pass;
  }
  for (const HistorySpan& span : history.spans) {
    const auto pass = by_number.find(span.pass);
    if (pass != by_number.end()) {
      times.passes[pass->second].busy_s[span.kind] += span.duration_s();
    }
  }
  for (const Stall& stall : times.stalls) {
    const auto pass = by_number.find(stall.pass);
    if (pass != by_number.end()) {
      times.passes[pass->second].stalls_s[std::string(stall.cause)] += stall.end_s - stall.begin_s;
    }
  }
  // The first pass fills the RAM tier; it stands for all only where it is alone.
  const std::size_t first = times.passes.size() > 1 ? 1 : 0;
  std::vector<double> pass_s;
  std::vector<double> other_s;
  std::vector<double> read_bytes;
  std::vector<const SecondsByName*> busy;
  std::vector<const SecondsByName*> stalled;
  for (std::size_t at = first; at < times.passes.size(); ++at) {
    const PassTimes& pass = times.passes[at];
    pass_s.push_back(pass.pass->duration_s());
    other_s.push_back(pass.other_s());
    read_bytes.push_back(static_cast<double>(pass.pass->read_bytes_ram) +
                         static_cast<double>(pass.pass->read_bytes_disk));
    busy.push_back(&pass.busy_s);
    stalled.push_back(&pass.stalls_s);
  }
  times.pass_s = median_or_zero(std::move(pass_s));
  times.other_s = median_or_zero(std::move(other_s));
  times.read_bytes = median_or_zero(std::move(read_bytes));
  times.busy_s = medians_of(busy);
  times.stalls_s = medians_of(stalled);
  add_blocks(history, times.passes[first].pass->pass, times);
  return times;
}

}  // namespace trash_panda::cli
