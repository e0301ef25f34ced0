#include "run_history.h"

#include <cstddef>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/json_depth.h"
#include "trash_panda/base/printable.h"

namespace trash_panda::cli {

namespace {

/// Longer than any run: ten years.
constexpr double kRunSecondsMax = 3e8;

/// Reads members of one record, and keeps what is wrong with the first that is not as it must be.
class RecordReader {
 public:
  explicit RecordReader(const nlohmann::json& record) : record_(record) {}

  [[nodiscard]] const std::string& wrong() const { return wrong_; }

  void text(const char* key, std::string& out) {
    const nlohmann::json* const found = member(key);
    if (found == nullptr || !found->is_string()) {
      refuse(key, "must be a string");
      return;
    }
    out = found->get<std::string>();
  }
  void seconds(const char* key, double& out) {
    const nlohmann::json* const found = member(key);
    if (found == nullptr || !found->is_number() || !(found->get<double>() >= 0) ||
        found->get<double>() > kRunSecondsMax) {
      refuse(key, "must be a number of seconds");
      return;
    }
    out = found->get<double>();
  }
  void whole(const char* key, std::uint64_t& out) {
    const nlohmann::json* const found = member(key);
    if (found == nullptr || !found->is_number_unsigned()) {
      refuse(key, "must be a whole number");
      return;
    }
    out = found->get<std::uint64_t>();
  }
  void optional_whole(const char* key, std::uint64_t& out) {
    if (member(key) != nullptr) {
      whole(key, out);
    }
  }
  void refuse(std::string_view key, std::string_view what) {
    if (wrong_.empty()) {
      wrong_ = fmt::format("{} {}", key, what);
    }
  }

 private:
  const nlohmann::json* member(const char* key) const {
    const auto found = record_.find(key);
    return found == record_.end() ? nullptr : &*found;
  }

  const nlohmann::json& record_;
  std::string wrong_;
};

void read_blocks(const nlohmann::json& record, RecordReader& reader, RunHistory& history) {
  const auto blocks = record.find("blocks");
  if (blocks == record.end() || !blocks->is_array()) {
    reader.refuse("blocks", "must be a list");
    return;
  }
  history.block_count = blocks->size();
  for (const nlohmann::json& block : *blocks) {
    const auto tier = block.is_object() ? block.find("tier") : block.end();
    if (!block.is_object() || tier == block.end() || !tier->is_string()) {
      reader.refuse("blocks", "must be objects with a tier");
      return;
    }
    if (*tier == "disk") {
      ++history.disk_block_count;
    }
  }
}

void read_span(RecordReader& reader, RunHistory& history) {
  HistorySpan& span = history.spans.emplace_back();
  reader.text("kind", span.kind);
  reader.whole("pass", span.pass);
  reader.text("block", span.block);
  reader.seconds("begin_s", span.begin_s);
  reader.seconds("end_s", span.end_s);
  reader.optional_whole("bytes", span.size_bytes);
  if (span.end_s < span.begin_s) {
    reader.refuse("end_s", "is before begin_s");
  }
}

void read_pass(RecordReader& reader, RunHistory& history) {
  HistoryPass& pass = history.passes.emplace_back();
  reader.whole("pass", pass.pass);
  reader.seconds("begin_s", pass.begin_s);
  reader.seconds("end_s", pass.end_s);
  reader.whole("read_bytes_ram", pass.read_bytes_ram);
  reader.whole("read_bytes_disk", pass.read_bytes_disk);
  if (pass.end_s < pass.begin_s) {
    reader.refuse("end_s", "is before begin_s");
  }
}

/// Adds one line; what is wrong with it, or nothing.
std::string read_line(std::string_view line, RunHistory& history) {
  const nlohmann::json record =
      is_json_too_deep(line) ? nlohmann::json(nlohmann::json::value_t::discarded)
                             : nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) {
    return "not a JSON object";
  }
  RecordReader reader(record);
  std::string type;
  reader.text("type", type);
  if (type == "run") {
    reader.text("pack", history.pack);
    reader.text("io", history.io);
  } else if (type == "blocks") {
    read_blocks(record, reader, history);
  } else if (type == "memory") {
    reader.whole("booked_bytes", history.booked_bytes);
  } else if (type == "span") {
    read_span(reader, history);
  } else if (type == "pass") {
    read_pass(reader, history);
  }
  return reader.wrong();
}

}  // namespace

Result<RunHistory> parse_run_history(std::string_view text, std::string_view where) {
  RunHistory history;
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const bool is_cut_off = end == std::string_view::npos;
    const std::string wrong = read_line(text.substr(0, end), history);
    text.remove_prefix(is_cut_off ? text.size() : end + 1);
    if (!wrong.empty()) {
      Error error(ErrorCode::kCorrupt, fmt::format("{}:{}: {}", printable(where), number, wrong));
      return std::unexpected(
          is_cut_off ? std::move(error).with_hint("the last line has no end: the run may have been "
                                                  "cut off there; without that line it can be read")
                     : std::move(error));
    }
  }
  if (history.passes.empty()) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt, fmt::format("{} has no pass", printable(where)))
            .with_hint("TRASH_PANDA_LOG=FILE, set before loading, writes a log of the passes"));
  }
  return history;
}

}  // namespace trash_panda::cli
