#include "run_history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/json_depth.h"
#include "trash_panda/base/printable.h"

namespace trash_panda::cli {

namespace {

/// Longer than any run: ten years.
constexpr double kRunSecondsMax = 3e8;
/// More than a log has lines.
constexpr std::uint64_t kLostCountMax = std::uint64_t{1} << 53U;

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
  void optional_text(const char* key, std::string& out) {
    if (member(key) != nullptr) {
      text(key, out);
    }
  }
  /// Begin and end, which may be negative.
  void optional_range(const char* key, std::optional<PlannedTimes::Range>& out) {
    const nlohmann::json* const found = member(key);
    if (found == nullptr) {
      return;
    }
    const auto is_time = [](const nlohmann::json& value) {
      return value.is_number() && std::abs(value.get<double>()) <= kRunSecondsMax;
    };
    if (!found->is_array() || found->size() != 2 || !std::ranges::all_of(*found, is_time) ||
        (*found)[0].get<double>() > (*found)[1].get<double>()) {
      refuse(key, "must be two numbers of seconds, the smaller first");
      return;
    }
    out.emplace((*found)[0].get<double>(), (*found)[1].get<double>());
  }
  /// Calls `read` with each of a list of objects.
  template <class Read>
  void each(const char* key, Read read) {
    const nlohmann::json* const found = member(key);
    if (found == nullptr || !found->is_array()) {
      refuse(key, "must be a list");
      return;
    }
    for (const nlohmann::json& item : *found) {
      if (!item.is_object()) {
        refuse(key, "must be objects");
        return;
      }
      read(item);
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

void read_block(const nlohmann::json& record, RecordReader& outer, RunHistory& history) {
  HistoryBlock& block = history.blocks.emplace_back();
  RecordReader reader(record);
  reader.text("name", block.name);
  reader.text("tier", block.tier);
  reader.optional_whole("stored_bytes", block.stored_bytes);
  if (!reader.wrong().empty()) {
    outer.refuse("blocks:", reader.wrong());
  }
}

void read_planned(const nlohmann::json& record, RecordReader& outer, HistoryPlan& plan) {
  PlannedTimes& block = plan.blocks.emplace_back();
  RecordReader reader(record);
  reader.text("name", block.name);
  reader.optional_range("read_s", block.read_s);
  reader.optional_range("decode_s", block.decode_s);
  reader.optional_range("copy_s", block.copy_s);
  std::optional<PlannedTimes::Range> compute_s;
  reader.optional_range("compute_s", compute_s);
  block.compute_s = compute_s.value_or(PlannedTimes::Range());
  if (record.contains("stall_s")) {
    reader.seconds("stall_s", block.stall_s);
    reader.text("stalled_by", block.stalled_by);
  }
  if (!reader.wrong().empty()) {
    outer.refuse("blocks:", reader.wrong());
  }
}

void read_plan(RecordReader& reader, RunHistory& history) {
  HistoryPlan& plan = history.plan.emplace();
  reader.seconds("pass_s", plan.pass_s);
  reader.seconds("bound_s", plan.bound_s);
  reader.text("limiting", plan.limiting);
  reader.seconds("stall_s", plan.stall_s);
  reader.seconds("first_pass_s", plan.first_pass_s);
  reader.each("blocks", [&](const nlohmann::json& block) { read_planned(block, reader, plan); });
}

void read_memory(RecordReader& reader, RunHistory& history) {
  HistoryMemory& memory = history.memory.emplace_back();
  reader.seconds("at_s", memory.at_s);
  reader.whole("booked_bytes", memory.booked_bytes);
  reader.optional_whole("base_bytes", memory.base_bytes);
  reader.optional_whole("ram_tier_bytes", memory.ram_tier_bytes);
  reader.optional_whole("slot_bytes", memory.slot_bytes);
  reader.optional_whole("expanded_bytes", memory.expanded_bytes);
  reader.optional_whole("device_bytes", memory.device_bytes);
  reader.optional_whole("process_bytes", memory.process_bytes);
}

void read_span(RecordReader& reader, RunHistory& history) {
  HistorySpan& span = history.spans.emplace_back();
  reader.text("kind", span.kind);
  reader.optional_text("cause", span.cause);
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

HistoryHome& read_home(RecordReader& reader, RunHistory& history) {
  HistoryHome& home = history.homes.emplace_back();
  reader.seconds("at_s", home.at_s);
  reader.text("block", home.block);
  return home;
}

void read_drop(RecordReader& reader, RunHistory& history) {
  read_home(reader, history);
}

void read_stay(RecordReader& reader, RunHistory& history) {
  read_home(reader, history).stays = true;
}

void read_lost(RecordReader& reader, RunHistory& history) {
  std::uint64_t count = 0;
  reader.whole("record_count", count);
  history.lost_count +=
      std::min(count, kLostCountMax - std::min(history.lost_count, kLostCountMax));
}

void read_run(RecordReader& reader, RunHistory& history) {
  reader.text("pack", history.pack);
  reader.text("io", history.io);
  reader.optional_text("device", history.device);
}

void read_blocks(RecordReader& reader, RunHistory& history) {
  history.blocks.clear();
  reader.each("blocks", [&](const nlohmann::json& block) { read_block(block, reader, history); });
}

/// What reads the records of each type.
constexpr std::array<std::pair<std::string_view, void (*)(RecordReader&, RunHistory&)>, 9> kTypes =
    {{{"run", read_run},
      {"plan", read_plan},
      {"blocks", read_blocks},
      {"memory", read_memory},
      {"span", read_span},
      {"drop", read_drop},
      {"stay", read_stay},
      {"pass", read_pass},
      {"lost", read_lost}}};

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
  const auto* const known = std::ranges::find(kTypes, type, &decltype(kTypes)::value_type::first);
  if (known != kTypes.end()) {
    known->second(reader, history);
  }
  return reader.wrong();
}

}  // namespace

std::uint64_t RunHistory::block_count(std::string_view tier) const {
  return static_cast<std::uint64_t>(std::ranges::count(blocks, tier, &HistoryBlock::tier));
}

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
  return history;
}

}  // namespace trash_panda::cli
