#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "history_times.h"
#include "json_text.h"
#include "report_page.h"
#include "run_history.h"

namespace trash_panda::cli {

namespace {

/// About 2 MB of page; a browser draws as many without a pause.
constexpr std::size_t kSpansDrawn = 20'000;
/// More are not told apart on a screen.
constexpr std::size_t kPassesDrawn = 1000;

using IndexByName = std::map<std::string_view, std::size_t>;

/// The passes whose spans come with the page: the first two, then the last ones.
std::set<std::uint64_t> drawn_passes(const RunHistory& history) {
  std::map<std::uint64_t, std::size_t> span_count;
  for (const HistorySpan& span : history.spans) {
    ++span_count[span.pass];
  }
  std::set<std::uint64_t> drawn;
  std::size_t count = 0;
  const auto draw = [&](const HistoryPass& pass) {
    if (drawn.insert(pass.pass).second) {
      count += span_count[pass.pass];
    }
    return count < kSpansDrawn;
  };
  draw(history.passes.front());
  bool has_room = draw(history.passes[std::min<std::size_t>(1, history.passes.size() - 1)]);
  const std::size_t shown = std::min(history.passes.size(), kPassesDrawn - 1);
  for (std::size_t back = 1; has_room && back <= shown; ++back) {
    has_room = draw(history.passes[history.passes.size() - back]);
  }
  return drawn;
}

Json seconds_json_of(const SecondsByName& seconds) {
  Json document = Json::object();
  for (const auto& [name, value] : seconds) {
    document[name] = value;
  }
  return document;
}

Json plan_json_of(const HistoryPlan& plan) {
  Json blocks = Json::array();
  for (const PlannedTimes& block : plan.blocks) {
    Json planned = {{"name", block.name},
                    {"compute_s", {block.compute_s.first, block.compute_s.second}},
                    {"stall_s", block.stall_s},
                    {"stalled_by", block.stalled_by}};
    const auto add = [&](const char* key, const std::optional<PlannedTimes::Range>& range) {
      if (range) {
        planned[key] = {range->first, range->second};
      }
    };
    add("read_s", block.read_s);
    add("decode_s", block.decode_s);
    add("copy_s", block.copy_s);
    blocks.push_back(std::move(planned));
  }
  return {{"pass_s", plan.pass_s},
          {"bound_s", plan.bound_s},
          {"limiting", plan.limiting},
          {"stall_s", plan.stall_s},
          {"first_pass_s", plan.first_pass_s},
          {"blocks", std::move(blocks)}};
}

Json page_blocks(const HistoryTimes& times) {
  Json blocks = Json::array();
  for (const BlockTimes& block : times.blocks) {
    Json shown = {{"name", block.block->name},
                  {"tier", block.block->tier},
                  {"stored_bytes", block.block->stored_bytes},
                  {"busy_s", seconds_json_of(block.busy_s)},
                  {"stall_s", block.stall_s},
                  {"stall_cause", block.stall_cause}};
    if (block.plan != nullptr) {
      shown["predicted_compute_s"] = block.plan->compute_s.second - block.plan->compute_s.first;
    }
    blocks.push_back(std::move(shown));
  }
  return blocks;
}

/// The first pass and the last ones.
Json passes_json(const HistoryTimes& times, const std::set<std::uint64_t>& drawn) {
  Json passes = Json::array();
  const std::size_t count = times.passes.size();
  for (std::size_t at = 0; at < count; ++at) {
    if (at > 0 && at + kPassesDrawn - 1 < count) {
      continue;
    }
    const PassTimes& pass = times.passes[at];
    passes.push_back({{"pass", pass.pass->pass},
                      {"begin_s", pass.pass->begin_s},
                      {"end_s", pass.pass->end_s},
                      {"read_bytes", pass.pass->read_bytes_ram + pass.pass->read_bytes_disk},
                      {"busy_s", seconds_json_of(pass.busy_s)},
                      {"stalls_s", seconds_json_of(pass.stalls_s)},
                      {"elsewhere_s", pass.other_s()},
                      {"is_drawn", drawn.contains(pass.pass->pass)}});
  }
  return passes;
}

Json memory_json(const RunHistory& history) {
  Json list = Json::array();
  const std::size_t step = history.memory.size() / kPassesDrawn + 1;
  for (std::size_t at = 0; at < history.memory.size(); at += step) {
    const HistoryMemory& memory = history.memory[at];
    list.push_back({{"at_s", memory.at_s},
                    {"base_bytes", memory.base_bytes},
                    {"ram_tier_bytes", memory.ram_tier_bytes},
                    {"slot_bytes", memory.slot_bytes},
                    {"expanded_bytes", memory.expanded_bytes},
                    {"device_bytes", memory.device_bytes},
                    {"process_bytes", memory.process_bytes}});
  }
  return list;
}

/// Spans of the drawn passes, and of those behind them, for which is read ahead.
void add_spans(const RunHistory& history, const HistoryTimes& times,
               const std::set<std::uint64_t>& drawn, Json& page) {
  IndexByName index_of;
  for (const HistoryBlock& block : history.blocks) {
    index_of.emplace(block.name, index_of.size());
  }
  const auto is_drawn = [&](std::uint64_t pass) {
    return drawn.contains(pass) || (pass > 0 && drawn.contains(pass - 1));
  };
  Json spans = Json::array();
  for (const HistorySpan& span : history.spans) {
    const auto index = index_of.find(span.block);
    if (is_drawn(span.pass) && index != index_of.end()) {
      spans.push_back({{"kind", span.kind},
                       {"pass", span.pass},
                       {"index", index->second},
                       {"begin", span.begin_s},
                       {"end", span.end_s},
                       {"bytes", span.size_bytes}});
    }
  }
  Json stalls = Json::array();
  for (const Stall& stall : times.stalls) {
    const auto index = index_of.find(stall.block);
    if (drawn.contains(stall.pass) && index != index_of.end()) {
      stalls.push_back({{"index", index->second},
                        {"pass", stall.pass},
                        {"begin", stall.begin_s},
                        {"end", stall.end_s},
                        {"cause", stall.cause}});
    }
  }
  Json homes = Json::array();
  for (const HistoryHome& home : history.homes) {
    const auto index = index_of.find(home.block);
    if (index != index_of.end()) {
      homes.push_back({{"index", index->second}, {"at_s", home.at_s}, {"stays", home.stays}});
    }
  }
  page["spans"] = std::move(spans);
  page["stalls"] = std::move(stalls);
  page["homes"] = std::move(homes);
}

Json page_json(const RunHistory& history, std::string_view file) {
  const HistoryTimes times = history_times(history);
  const std::set<std::uint64_t> drawn = drawn_passes(history);
  Json page = {{"file", file},
               {"pack", history.pack},
               {"io", history.io},
               {"device", history.device},
               {"lost_record_count", history.lost_count},
               {"plan", history.plan ? plan_json_of(*history.plan) : Json()},
               {"pass_count", history.passes.size()},
               {"typical",
                {{"pass_s", times.pass_s},
                 {"read_bytes", times.read_bytes},
                 {"busy_s", seconds_json_of(times.busy_s)},
                 {"stalls_s", seconds_json_of(times.stalls_s)}}},
               {"passes", passes_json(times, drawn)},
               {"blocks", page_blocks(times)},
               {"memory", memory_json(history)}};
  add_spans(history, times, drawn, page);
  return page;
}

/// JSON that may stand in a script element: a name can't end it, as no "<" is left.
std::string script_text(const Json& page) {
  std::string text;
  for (const char letter : json_line(page)) {
    if (letter == '<') {
      text += "\\u003c";
    } else {
      text += letter;
    }
  }
  return text;
}

}  // namespace

std::string history_page(const RunHistory& history, std::string_view file) {
  std::string page(kReportPageHtml);
  // In their order, so that what was put in is not searched.
  std::size_t at = 0;
  const auto put = [&](std::string_view place, std::string_view text) {
    at = page.find(place, at);
    page.replace(at, place.size(), text);
    at += text.size();
  };
  put("@STYLE@", kReportPageCss);
  put("@RUN@", script_text(page_json(history, file)));
  put("@SCRIPT@", kReportPageJs);
  return page;
}

}  // namespace trash_panda::cli
