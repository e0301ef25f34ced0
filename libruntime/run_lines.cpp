#include "run_lines.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/plan/prediction.h"
#include "trash_panda/plan/simulator.h"

namespace trash_panda::runtime {

namespace {

using Record = nlohmann::ordered_json;

/// Whole microseconds: finer than what any span lasts, and short in the file.
double rounded(double seconds) {
  return std::round(seconds * 1e6) / 1e6;
}

/// A name or a pack's path may be no UTF-8.
std::string json_text(const Record& value) {
  return value.dump(-1, ' ', false, Record::error_handler_t::replace);
}

void add_line(const Record& record, std::string& lines) {
  lines += json_text(record);
  lines += '\n';
}

/// Physical memory of this process, or 0 where the system does not say.
std::uint64_t process_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  file >> total_pages >> resident_pages;
  return file ? resident_pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

/// @param start_s  When the pass starts, in the simulation's time.
Record planned_block(const plan::PlannedBlock& block, const plan::BlockCost& cost,
                     const plan::BlockTimes& times, double start_s) {
  const auto range = [start_s](double begin_s, double end_s) {
    return Record{rounded(begin_s - start_s), rounded(end_s - start_s)};
  };
  Record record = {{"name", block.name}, {"tier", format::tier_name(block.tier)}};
  if (cost.read_s > 0) {
    record["read_s"] = range(times.read_begin_s, times.read_end_s);
  }
  if (cost.decode_s > 0) {
    record["decode_s"] = range(times.decode_end_s - cost.decode_s, times.decode_end_s);
  }
  if (cost.copy_s > 0) {
    record["copy_s"] = range(times.copy_begin_s, times.copy_end_s);
  }
  record["compute_s"] = range(times.compute_begin_s, times.compute_end_s);
  if (times.stall_s > 0) {
    record["stall_s"] = rounded(times.stall_s);
    record["stalled_by"] = plan::channel_name(times.stalled_by);
  }
  return record;
}

}  // namespace

std::string_view span_kind_name(SpanKind kind) {
  switch (kind) {
    case SpanKind::kRead:
      return "read";
    case SpanKind::kDecode:
      return "decode";
    case SpanKind::kCopy:
      return "copy";
    case SpanKind::kExpand:
      return "expand";
    case SpanKind::kCompute:
      return "compute";
    case SpanKind::kWait:
      return "wait";
  }
  return "";
}

RunLines::RunLines(RunClock::time_point begin, const RunStart& start) : start_(begin) {
  add_line({{"type", "run"},
            {"schema", "trash-panda/run-log/1"},
            {"pack", start.pack.string()},
            {"io", start.io},
            {"device", start.device}},
           lines_);
  if (start.plan) {
    add_plan(*start.plan);
  }
  Record list = Record::array();
  for (const RunBlock& block : start.blocks) {
    list.push_back({{"name", block.name},
                    {"tier", format::tier_name(block.tier)},
                    {"stored_bytes", block.stored_bytes}});
    blocks_.push_back(
        {.name = json_text(Record(block.name)), .tier = format::tier_name(block.tier)});
  }
  add_line({{"type", "blocks"}, {"blocks", std::move(list)}}, lines_);
  add_memory(start.memory, start.memory_text);
}

double RunLines::seconds(RunClock::time_point time) const {
  return rounded(std::chrono::duration<double>(std::max(time, start_) - start_).count());
}

/// The predicted pass in the steady state, block by block. It starts when the first block is asked
/// for, with what that is waited for.
void RunLines::add_plan(const plan::Plan& plan) {
  if (!plan.predicted) {
    return;
  }
  const plan::PassModel model = plan::pass_model(plan);
  const plan::Simulation simulation = plan::simulate(model);
  const std::vector<plan::BlockTimes>& times = simulation.blocks;
  const double start_s = times.empty() ? 0 : times[0].compute_begin_s - times[0].stall_s;
  Record blocks = Record::array();
  for (std::size_t at = 0; at < plan.blocks.size(); ++at) {
    blocks.push_back(planned_block(plan.blocks[at], model.blocks[at], times[at], start_s));
  }
  add_line({{"type", "plan"},
            {"pass_s", rounded(plan.predicted->pass_s)},
            {"bound_s", rounded(plan.predicted->bound_s)},
            {"limiting", plan.predicted->limiting},
            {"stall_s", rounded(plan.predicted->stall_s)},
            {"first_pass_s", rounded(plan.predicted->first_pass_s)},
            {"blocks", std::move(blocks)}},
           lines_);
}

void RunLines::add_memory(const RunMemory& memory, std::string_view text) {
  constexpr std::array<const char*, kMemoryUseCount> kKeys = {"base_bytes", "ram_tier_bytes",
                                                              "slot_bytes", "expanded_bytes"};
  std::uint64_t booked_bytes = 0;
  for (const std::uint64_t bytes : memory.bytes_by_use) {
    booked_bytes += bytes;
  }
  Record record = {
      {"type", "memory"}, {"at_s", seconds(memory.at)}, {"booked_bytes", booked_bytes}};
  for (std::size_t use = 0; use < kMemoryUseCount; ++use) {
    record[kKeys.at(use)] = memory.bytes_by_use.at(use);
  }
  record["device_bytes"] = memory.device_bytes;
  if (const std::uint64_t bytes = process_bytes(); bytes > 0) {
    record["process_bytes"] = bytes;
  }
  if (!text.empty()) {
    record["text"] = text;
  }
  add_line(record, lines_);
}

void RunLines::add(const RunSpan& span) {
  RunClock::time_point begin = span.begin;
  if (span.kind == SpanKind::kRead || span.kind == SpanKind::kCopy) {
    // Both are queued long before: one is on its way when those before it have come in.
    RunClock::time_point& last = span.kind == SpanKind::kRead ? last_read_end_ : last_copy_end_;
    begin = std::min(std::max(begin, last), span.end);
    last = std::max(last, span.end);
  }
  Block& block = blocks_[span.block];
  const auto out = std::back_inserter(lines_);
  fmt::format_to(out, R"({{"type":"span","kind":"{}","pass":{},"block":{},"tier":"{}",)",
                 span_kind_name(span.kind), span.pass, block.name, block.tier);
  if (span.kind == SpanKind::kWait) {
    fmt::format_to(out, R"("cause":"{}",)", span_kind_name(span.cause));
  }
  fmt::format_to(out,
                 R"("begin_s":{:.6f},"end_s":{:.6f},"bytes":{}}})"
                 "\n",
                 seconds(begin), seconds(span.end), span.size_bytes);
  if (span.kind == SpanKind::kCompute) {
    block.compute_s += std::chrono::duration<double>(span.end - span.begin).count();
    block.is_computed = true;
  }
}

void RunLines::add(const RunPass& pass) {
  const auto out = std::back_inserter(lines_);
  for (Block& block : blocks_) {
    if (std::exchange(block.is_computed, false)) {
      fmt::format_to(out,
                     R"({{"type":"block","pass":{},"name":{},"compute_s":{:.6f}}})"
                     "\n",
                     pass.pass, block.name, std::exchange(block.compute_s, 0));
    }
  }
  add_line({{"type", "pass"},
            {"pass", pass.pass},
            {"begin_s", seconds(pass.begin)},
            {"end_s", seconds(pass.end)},
            {"read_bytes_ram", pass.read_bytes_ram},
            {"read_bytes_disk", pass.read_bytes_disk}},
           lines_);
}

void RunLines::add(const RunHome& home) {
  fmt::format_to(std::back_inserter(lines_),
                 R"({{"type":"{}","at_s":{:.6f},"block":{}}})"
                 "\n",
                 home.stays ? "stay" : "drop", seconds(home.at), blocks_[home.block].name);
}

void RunLines::add_lost(std::uint64_t record_count) {
  add_line({{"type", "lost"}, {"record_count", record_count}}, lines_);
}

std::string RunLines::take() {
  return std::exchange(lines_, {});
}

}  // namespace trash_panda::runtime
