#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"

#include "json_text.h"
#include "model_input.h"
#include "run_history.h"
#include "step_report.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

constexpr std::size_t kWaitsShown = 5;

/// Seconds of each kind in one pass.
using KindSeconds = std::map<std::string, double, std::less<>>;

double of_kind(const KindSeconds& seconds, std::string_view kind) {
  const auto found = seconds.find(kind);
  return found == seconds.end() ? 0.0 : found->second;
}

std::map<std::uint64_t, KindSeconds> seconds_by_pass(const RunHistory& history) {
  std::map<std::uint64_t, KindSeconds> by_pass;
  for (const HistorySpan& span : history.spans) {
    by_pass[span.pass][span.kind] += span.end_s - span.begin_s;
  }
  return by_pass;
}

std::string pass_table(const RunHistory& history) {
  std::map<std::uint64_t, KindSeconds> by_pass = seconds_by_pass(history);
  std::vector<std::vector<std::string>> rows = {
      {"pass", "time", "read", "reading", "waiting", "expanding", "computing"}};
  for (const HistoryPass& pass : history.passes) {
    const KindSeconds& seconds = by_pass[pass.pass];
    rows.push_back({fmt::format("{}", pass.pass), format_seconds(pass.end_s - pass.begin_s),
                    format_bytes(pass.read_bytes_ram + pass.read_bytes_disk),
                    format_seconds(of_kind(seconds, "read")),
                    format_seconds(of_kind(seconds, "wait")),
                    format_seconds(of_kind(seconds, "decode") + of_kind(seconds, "expand")),
                    format_seconds(of_kind(seconds, "compute"))});
  }
  return format_table("rrrrrrr", rows);
}

/// Of all passes but the first, which fills the RAM tier; of that, where there is no other.
std::string wait_table(const RunHistory& history) {
  const std::uint64_t first = history.passes.size() > 1 ? 2 : 1;
  std::map<std::string, double> wait_s;
  double total_s = 0;
  for (const HistorySpan& span : history.spans) {
    if (span.kind == "wait" && span.pass >= first) {
      wait_s[span.block] += span.end_s - span.begin_s;
      total_s += span.end_s - span.begin_s;
    }
  }
  if (total_s <= 0) {
    return {};
  }
  std::vector<std::pair<std::string, double>> sorted(wait_s.begin(), wait_s.end());
  std::ranges::stable_sort(sorted, std::ranges::greater(), &std::pair<std::string, double>::second);
  sorted.resize(std::min(sorted.size(), kWaitsShown));
  std::vector<std::vector<std::string>> rows = {{"waited for", "in all", "share"}};
  for (const auto& [block, seconds] : sorted) {
    rows.push_back({printable(block), format_seconds(seconds),
                    fmt::format("{:.0f} %", 100 * seconds / total_s)});
  }
  return "\n" + format_table("lrr", rows);
}

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

std::string history_summary(const RunHistory& history, std::string_view file) {
  std::string out = fmt::format(
      "{}  {}  {}\n{}, {} of them read every pass; weights take "
      "{}\n\n",
      printable(file), printable(history.pack), printable(history.io),
      counted(history.block_count, "block"), history.disk_block_count,
      format_bytes(history.booked_bytes));
  return out + pass_table(history) + wait_table(history);
}

std::string history_json(const RunHistory& history, std::string_view file) {
  std::map<std::uint64_t, KindSeconds> by_pass = seconds_by_pass(history);
  Json passes = Json::array();
  for (const HistoryPass& pass : history.passes) {
    const KindSeconds& seconds = by_pass[pass.pass];
    passes.push_back({{"pass", pass.pass},
                      {"duration_s", pass.end_s - pass.begin_s},
                      {"read_bytes_ram", pass.read_bytes_ram},
                      {"read_bytes_disk", pass.read_bytes_disk},
                      {"read_s", of_kind(seconds, "read")},
                      {"wait_s", of_kind(seconds, "wait")},
                      {"decode_s", of_kind(seconds, "decode")},
                      {"expand_s", of_kind(seconds, "expand")},
                      {"compute_s", of_kind(seconds, "compute")}});
  }
  return json_document({{"schema", "trash-panda/report/1"},
                        {"run", file},
                        {"pack", history.pack},
                        {"io", history.io},
                        {"block_count", history.block_count},
                        {"disk_block_count", history.disk_block_count},
                        {"booked_bytes", history.booked_bytes},
                        {"passes", std::move(passes)}});
}

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
  return json_line({{"traceEvents", std::move(events)},
                    {"displayTimeUnit", "ms"},
                    {"otherData", {{"pack", history.pack}, {"io", history.io}}}}) +
         "\n";
}

}  // namespace trash_panda::cli
