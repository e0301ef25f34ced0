#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "json_text.h"
#include "run_history.h"

namespace trash_panda::cli {

namespace {

/// Lanes in the order in which a block passes them.
std::uint64_t lane_of(std::string_view kind) {
  constexpr std::array<std::string_view, 6> kLanes = {"read", "decode", "copy",
                                                      "wait", "expand", "compute"};
  const auto found = std::ranges::find(kLanes, kind);
  return static_cast<std::uint64_t>(found - kLanes.begin()) + 1;
}

std::int64_t microseconds(double seconds) {
  return std::llround(seconds * 1e6);
}

}  // namespace

std::string history_trace(const RunHistory& history) {
  Json events = Json::array();
  std::map<std::uint64_t, std::string> lanes;
  for (const HistorySpan& span : history.spans) {
    const std::uint64_t lane = lane_of(span.kind);
    lanes.emplace(lane, span.kind);
    Json arguments = {{"pass", span.pass}};
    if (span.size_bytes > 0) {
      arguments["bytes"] = span.size_bytes;
    }
    if (!span.cause.empty()) {
      arguments["cause"] = span.cause;
    }
    const std::int64_t begin_us = microseconds(span.begin_s);
    events.push_back({{"name", span.block},
                      {"cat", span.kind},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", lane},
                      {"ts", begin_us},
                      {"dur", microseconds(span.end_s) - begin_us},
                      {"args", std::move(arguments)}});
  }
  for (const auto& [lane, kind] : lanes) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 1},
                      {"tid", lane},
                      {"args", {{"name", kind}}}});
  }
  for (const HistoryMemory& memory : history.memory) {
    events.push_back({{"name", "weight memory"},
                      {"ph", "C"},
                      {"pid", 1},
                      {"ts", microseconds(memory.at_s)},
                      {"args", {{"bytes", memory.booked_bytes}}}});
  }
  return json_line({{"traceEvents", std::move(events)},
                    {"displayTimeUnit", "ms"},
                    {"otherData", {{"pack", history.pack}, {"io", history.io}}}}) +
         "\n";
}

}  // namespace trash_panda::cli
