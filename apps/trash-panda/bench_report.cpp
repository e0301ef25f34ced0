#include "bench_report.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"

#include "json_text.h"
#include "model_input.h"
#include "step_report.h"
#include "table.h"
#include "version_info.h"

namespace trash_panda::cli {

namespace {

/// Of at least one round.
struct Spread {
  double median;
  double min;
  double max;
};

Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {.median = median, .min = values.front(), .max = values.back()};
}

/// Round by round, since both took their turns one after the other.
Spread ratio_of(const runtime::BenchLine& line) {
  std::vector<double> ratios;
  for (std::size_t round = 0; round < line.measured.bytes_per_s.size(); ++round) {
    ratios.push_back(line.measured.bytes_per_s[round] / line.limit->bytes_per_s[round]);
  }
  return spread_of(std::move(ratios));
}

/// "2.05 (1.99..2.10)".
std::string spread_text(const Spread& spread, double unit) {
  const auto number = [unit](double value) { return fmt::format("{:#.3g}", value / unit); };
  return fmt::format("{} ({}..{})", number(spread.median), number(spread.min), number(spread.max));
}

std::string rates_text(const runtime::BenchSeries& series) {
  constexpr double kGigabyte = 1e9;
  return spread_text(spread_of(series.bytes_per_s), kGigabyte);
}

std::string lines_table(const runtime::BenchReport& report) {
  if (report.lines.empty()) {
    return {};
  }
  std::vector<std::vector<std::string>> rows = {
      {"what", "measured", "GB/s", "limit", "GB/s", "ratio"}};
  for (const runtime::BenchLine& line : report.lines) {
    std::vector<std::string>& row = rows.emplace_back();
    row = {line.what, printable(line.measured.name), rates_text(line.measured)};
    if (line.limit) {
      row.insert(row.end(), {printable(line.limit->name), rates_text(*line.limit),
                             spread_text(ratio_of(line), 1)});
    }
  }
  return format_table("llrlrr", rows);
}

std::string stream_text(const runtime::StreamBench& stream) {
  std::string out = fmt::format(
      "stream: {}, {} of weights, {} of disk read a pass\n", counted(stream.block_count, "block"),
      format_bytes(stream.weight_bytes), format_bytes(stream.disk_read_bytes));
  if (stream.pass_s.empty()) {
    return out;
  }
  const auto seconds = [](const std::vector<double>& values) {
    const Spread spread = spread_of(values);
    return fmt::format("{} ({}..{})", format_seconds(spread.median), format_seconds(spread.min),
                       format_seconds(spread.max));
  };
  out += fmt::format("  pass {}", seconds(stream.pass_s));
  if (!stream.plain_s.empty()) {
    out += fmt::format(", plain read of the same bytes {}", seconds(stream.plain_s));
  }
  return out + fmt::format(
                   "\n  first pass {}, of which {} waiting for reads ({} of RAM tier); "
                   "opened in {}\n",
                   format_seconds(stream.first_pass_s), format_seconds(stream.first_wait_s),
                   format_bytes(stream.ram_read_bytes), format_seconds(stream.open_s));
}

Json bench_rate_json(const runtime::BenchSeries& series) {
  const Spread spread = spread_of(series.bytes_per_s);
  const auto whole = [](double value) { return static_cast<std::uint64_t>(std::llround(value)); };
  return {
      {"name", series.name},
      {"bytes_per_s",
       {{"median", whole(spread.median)}, {"min", whole(spread.min)}, {"max", whole(spread.max)}}}};
}

Json spread_json(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

Json bench_seconds_json(const std::vector<double>& seconds) {
  return seconds.empty() ? Json(nullptr) : spread_json(spread_of(seconds));
}

Json stream_json(const runtime::StreamBench& stream) {
  return {{"block_count", stream.block_count},
          {"weight_bytes", stream.weight_bytes},
          {"disk_read_bytes", stream.disk_read_bytes},
          {"plain_read_bytes", stream.plain_read_bytes},
          {"ram_read_bytes", stream.ram_read_bytes},
          {"open_s", stream.open_s},
          {"first_pass_s", stream.first_pass_s},
          {"first_wait_s", stream.first_wait_s},
          {"pass_s", bench_seconds_json(stream.pass_s)},
          {"plain_read_s", bench_seconds_json(stream.plain_s)}};
}

}  // namespace

std::string bench_text(const BenchDocument& document) {
  std::string out = lines_table(document.report);
  if (document.stream) {
    out += stream_text(*document.stream);
  }
  for (const runtime::BenchLeftOut& left_out : document.report.left_out) {
    out += fmt::format("{} is left out: {}\n", left_out.what, printable(left_out.why));
  }
  return out;
}

std::string bench_json(const BenchDocument& document) {
  Json lines = Json::array();
  for (const runtime::BenchLine& line : document.report.lines) {
    lines.push_back({{"what", line.what},
                     {"measured", bench_rate_json(line.measured)},
                     {"limit", line.limit ? bench_rate_json(*line.limit) : Json(nullptr)},
                     {"ratio", line.limit ? spread_json(ratio_of(line)) : Json(nullptr)}});
  }
  Json left_out = Json::array();
  for (const runtime::BenchLeftOut& part : document.report.left_out) {
    left_out.push_back({{"what", part.what}, {"why", part.why}});
  }
  const Json whole = {{"schema", "trash-panda/bench/1"},
                      {"version", kVersion},
                      {"round_count", document.round_count},
                      {"path", document.path},
                      {"pack", document.pack.empty() ? Json(nullptr) : Json(document.pack)},
                      {"lines", lines},
                      {"stream", document.stream ? stream_json(*document.stream) : Json(nullptr)},
                      {"left_out", left_out}};
  return json_document(whole);
}

}  // namespace trash_panda::cli
