#include "run_recorder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/printable.h"

namespace trash_panda::runtime {

namespace {

using Record = nlohmann::ordered_json;

/// Whole microseconds: finer than what any span lasts, and short in the file.
double rounded(double seconds) {
  return std::round(seconds * 1e6) / 1e6;
}

void add_line(const Record& record, std::string& lines) {
  // A pack's path may be no UTF-8.
  lines += record.dump(-1, ' ', false, Record::error_handler_t::replace);
  lines += '\n';
}

std::string_view kind_name(SpanKind kind) {
  switch (kind) {
    case SpanKind::kRead:
      return "read";
    case SpanKind::kWait:
      return "wait";
    case SpanKind::kDecode:
      return "decode";
    case SpanKind::kExpand:
      return "expand";
    case SpanKind::kCompute:
      return "compute";
  }
  return "";
}

}  // namespace

Result<RunRecorder> RunRecorder::create(const std::filesystem::path& path, Logger log) {
  RunRecorder recorder;
  recorder.path_ = path;
  recorder.log_ = std::move(log);
  recorder.file_.open(path, std::ios::trunc);
  if (!recorder.file_) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("can't write the run log {}", printable(path))));
  }
  return recorder;
}

double RunRecorder::seconds(RunClock::time_point time) const {
  return rounded(std::chrono::duration<double>(time - start_).count());
}

void RunRecorder::add_run(const std::filesystem::path& pack, std::string_view io) {
  add_line(
      {{"type", "run"}, {"schema", "trash-panda/run-log/1"}, {"pack", pack.string()}, {"io", io}},
      lines_);
}

void RunRecorder::add_blocks(const std::vector<RunBlock>& blocks) {
  Record list = Record::array();
  for (const RunBlock& block : blocks) {
    list.push_back({{"name", block.name},
                    {"tier", format::tier_name(block.tier)},
                    {"stored_bytes", block.stored_bytes}});
  }
  add_line({{"type", "blocks"}, {"blocks", std::move(list)}}, lines_);
}

void RunRecorder::add_memory(std::uint64_t booked_bytes, std::string_view snapshot) {
  add_line({{"type", "memory"},
            {"at_s", seconds(RunClock::now())},
            {"booked_bytes", booked_bytes},
            {"text", snapshot}},
           lines_);
  write();
}

void RunRecorder::add(const RunSpan& span) {
  RunClock::time_point begin = span.begin;
  if (span.kind == SpanKind::kRead) {
    // Extents are queued long before: one is on its way when those before it have come in.
    begin = std::min(std::max(begin, last_read_end_), span.end);
    last_read_end_ = std::max(last_read_end_, span.end);
  }
  Record record = {
      {"type", "span"},      {"kind", kind_name(span.kind)}, {"pass", span.pass},
      {"block", span.block}, {"begin_s", seconds(begin)},    {"end_s", seconds(span.end)}};
  if (span.size_bytes > 0) {
    record["bytes"] = span.size_bytes;
  }
  add_line(record, lines_);
  if (span.kind == SpanKind::kCompute) {
    const auto found = compute_s_.try_emplace(std::string(span.block)).first;
    found->second += std::chrono::duration<double>(span.end - span.begin).count();
  }
}

void RunRecorder::end_pass(const RunPass& pass) {
  for (const auto& [name, compute_s] : std::exchange(compute_s_, {})) {
    add_line(
        {{"type", "block"}, {"pass", pass.pass}, {"name", name}, {"compute_s", rounded(compute_s)}},
        lines_);
  }
  add_line({{"type", "pass"},
            {"pass", pass.pass},
            {"begin_s", seconds(pass.begin)},
            {"end_s", seconds(pass.end)},
            {"read_bytes_ram", pass.read_bytes_ram},
            {"read_bytes_disk", pass.read_bytes_disk}},
           lines_);
  write();
}

void RunRecorder::write() {
  if (!file_) {
    lines_.clear();
    return;
  }
  file_ << std::exchange(lines_, {});
  file_.flush();
  if (!file_) {
    log_(LogLevel::kWarning,
         fmt::format("the run log {} can't be written any more: it ends here", printable(path_)));
  }
}

}  // namespace trash_panda::runtime
