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

#include "history_times.h"
#include "json_text.h"
#include "model_input.h"
#include "run_history.h"
#include "step_report.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

constexpr std::size_t kWaitsShown = 5;
/// Of the first and of the last ones, each.
constexpr std::size_t kPassesShown = 10;
constexpr std::size_t kBlocksShown = 20;

/// A kind of span that has a column where a run has any.
struct KindColumn {
  std::string_view kind;
  std::string_view title;
};
constexpr std::array<KindColumn, 5> kKindColumns = {{{"read", "reading"},
                                                     {"decode", "decoding"},
                                                     {"copy", "copying"},
                                                     {"expand", "expanding"},
                                                     {"compute", "computing"}}};

std::string seconds_or_dash(double seconds) {
  return seconds > 0 ? format_seconds(seconds) : "-";
}

std::vector<KindColumn> columns_of(const HistoryTimes& times) {
  std::vector<KindColumn> columns;
  for (const KindColumn& column : kKindColumns) {
    if (std::ranges::any_of(times.passes, [&](const PassTimes& pass) {
          return seconds_of(pass.busy_s, column.kind) > 0;
        })) {
      columns.push_back(column);
    }
  }
  return columns;
}

/// Leaves out rows in the middle of a table with a head.
void shorten(std::vector<std::vector<std::string>>& rows, std::size_t shown) {
  if (rows.size() > 1 + 2 * shown + 1) {
    const std::size_t left_out = rows.size() - 1 - 2 * shown;
    const auto first = rows.begin() + static_cast<std::ptrdiff_t>(1 + shown);
    *first = {"...", fmt::format("{} more", left_out)};
    rows.erase(first + 1, first + static_cast<std::ptrdiff_t>(left_out));
  }
}

std::string stall_text(double seconds, const std::string& cause) {
  return seconds > 0 ? fmt::format("{} ({})", format_seconds(seconds), printable(cause)) : "-";
}

std::string pass_table(const HistoryTimes& times) {
  const std::vector<KindColumn> columns = columns_of(times);
  std::vector<std::vector<std::string>> rows = {{"pass", "time", "read"}};
  for (const KindColumn& column : columns) {
    rows[0].emplace_back(column.title);
  }
  rows[0].insert(rows[0].end(), {"elsewhere", "stalled"});
  for (const PassTimes& pass : times.passes) {
    std::vector<std::string>& row = rows.emplace_back();
    row = {fmt::format("{}", pass.pass->pass), format_seconds(pass.pass->duration_s()),
           format_bytes(pass.pass->read_bytes_ram + pass.pass->read_bytes_disk)};
    for (const KindColumn& column : columns) {
      row.push_back(seconds_or_dash(seconds_of(pass.busy_s, column.kind)));
    }
    row.push_back(seconds_or_dash(pass.other_s()));
    row.push_back(stall_text(sum_of(pass.stalls_s), longest_of(pass.stalls_s)));
  }
  shorten(rows, kPassesShown);
  return format_table(std::string(rows[0].size() - 1, 'r') + "l", rows);
}

/// Typical times of each block, where the log has its blocks.
std::string block_table(const HistoryTimes& times) {
  if (times.blocks.empty()) {
    return {};
  }
  const std::vector<KindColumn> columns = columns_of(times);
  std::vector<std::vector<std::string>> rows = {{"block", "tier", "stored"}};
  for (const KindColumn& column : columns) {
    rows[0].emplace_back(column.title);
  }
  rows[0].emplace_back("stalled");
  for (const BlockTimes& block : times.blocks) {
    std::vector<std::string>& row = rows.emplace_back();
    row = {printable(block.block->name), printable(block.block->tier),
           format_bytes(block.block->stored_bytes)};
    for (const KindColumn& column : columns) {
      row.push_back(seconds_or_dash(seconds_of(block.busy_s, column.kind)));
    }
    row.push_back(stall_text(block.stall_s, block.stall_cause));
  }
  shorten(rows, kBlocksShown);
  return "\n" + format_table("llr" + std::string(columns.size(), 'r') + "l", rows);
}

/// Of all passes but the first, which fills the RAM tier; of that, where there is no other.
std::string longest_waits(const HistoryTimes& times) {
  const std::uint64_t first = times.passes[times.passes.size() > 1 ? 1 : 0].pass->pass;
  std::map<std::string, SecondsByName> by_block;
  double total_s = 0;
  for (const Stall& stall : times.stalls) {
    if (stall.pass >= first) {
      by_block[std::string(stall.block)][std::string(stall.cause)] += stall.end_s - stall.begin_s;
      total_s += stall.end_s - stall.begin_s;
    }
  }
  if (total_s <= 0) {
    return {};
  }
  std::vector<std::pair<std::string, double>> sorted;
  for (const auto& [block, causes] : by_block) {
    sorted.emplace_back(block, sum_of(causes));
  }
  std::ranges::stable_sort(sorted, std::ranges::greater(), &std::pair<std::string, double>::second);
  sorted.resize(std::min(sorted.size(), kWaitsShown));
  std::vector<std::vector<std::string>> rows = {
      {"waited for", "in all", "share", "mostly for its"}};
  for (const auto& [block, seconds] : sorted) {
    rows.push_back({printable(block), format_seconds(seconds),
                    fmt::format("{:.0f} %", 100 * seconds / total_s),
                    printable(longest_of(by_block[block]))});
  }
  return "\n" + format_table("lrrl", rows);
}

std::string plan_line(const RunHistory& history, const HistoryTimes& times) {
  if (!history.plan || history.plan->pass_s <= 0) {
    return {};
  }
  const HistoryPlan& plan = *history.plan;
  return fmt::format(
      "typical pass {}, {:+.0f} % from the predicted {} (bound {} by {}, {} of it stalled)\n",
      format_seconds(times.pass_s), 100 * (times.pass_s / plan.pass_s - 1),
      format_seconds(plan.pass_s), format_seconds(plan.bound_s), printable(plan.limiting),
      format_seconds(plan.stall_s));
}

std::string lost_line(const RunHistory& history) {
  return history.lost_count == 0
             ? std::string()
             : fmt::format("{} are missing: the log could not be written as fast\n",
                           counted(history.lost_count, "record"));
}

std::uint64_t booked_bytes(const RunHistory& history) {
  return history.memory.empty() ? 0 : history.memory.front().booked_bytes;
}

Json seconds_json(const SecondsByName& seconds) {
  Json document = Json::object();
  for (const auto& [name, value] : seconds) {
    document[name] = value;
  }
  return document;
}

Json pass_json(const PassTimes& times) {
  const HistoryPass& pass = *times.pass;
  return {{"pass", pass.pass},
          {"duration_s", pass.duration_s()},
          {"read_bytes_ram", pass.read_bytes_ram},
          {"read_bytes_disk", pass.read_bytes_disk},
          {"read_s", seconds_of(times.busy_s, "read")},
          {"wait_s", seconds_of(times.busy_s, "wait")},
          {"decode_s", seconds_of(times.busy_s, "decode")},
          {"copy_s", seconds_of(times.busy_s, "copy")},
          {"expand_s", seconds_of(times.busy_s, "expand")},
          {"compute_s", seconds_of(times.busy_s, "compute")},
          {"stalls_s", seconds_json(times.stalls_s)},
          {"elsewhere_s", times.other_s()}};
}

}  // namespace

std::string history_summary(const RunHistory& history, std::string_view file) {
  const HistoryTimes times = history_times(history);
  std::string out = fmt::format("{}  {}  {}\n{}, {} of them read every pass; weights take {}\n",
                                printable(file), printable(history.pack), printable(history.io),
                                counted(history.blocks.size(), "block"),
                                history.block_count("disk"), format_bytes(booked_bytes(history)));
  out += plan_line(history, times) + lost_line(history) + "\n";
  return out + pass_table(times) + block_table(times) + longest_waits(times);
}

std::string history_json(const RunHistory& history, std::string_view file) {
  const HistoryTimes times = history_times(history);
  Json passes = Json::array();
  for (const PassTimes& pass : times.passes) {
    passes.push_back(pass_json(pass));
  }
  Json blocks = Json::array();
  for (const BlockTimes& block : times.blocks) {
    blocks.push_back({{"name", block.block->name},
                      {"tier", block.block->tier},
                      {"stored_bytes", block.block->stored_bytes},
                      {"busy_s", seconds_json(block.busy_s)},
                      {"stall_s", block.stall_s},
                      {"stall_cause", block.stall_cause}});
  }
  Json predicted;
  if (history.plan) {
    predicted = {{"pass_s", history.plan->pass_s},
                 {"bound_s", history.plan->bound_s},
                 {"limiting", history.plan->limiting},
                 {"stall_s", history.plan->stall_s},
                 {"first_pass_s", history.plan->first_pass_s}};
  }
  return json_document({{"schema", "trash-panda/report/1"},
                        {"run", file},
                        {"pack", history.pack},
                        {"io", history.io},
                        {"device", history.device},
                        {"block_count", history.blocks.size()},
                        {"disk_block_count", history.block_count("disk")},
                        {"booked_bytes", booked_bytes(history)},
                        {"lost_record_count", history.lost_count},
                        {"predicted", std::move(predicted)},
                        {"passes", std::move(passes)},
                        {"blocks", std::move(blocks)}});
}

}  // namespace trash_panda::cli
