#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/json_depth.h"
#include "trash_panda/base/printable.h"
#include "trash_panda/plan/hardware_json.h"
#include "trash_panda/plan/plan_toml.h"

#include "commands.h"
#include "document_compare.h"
#include "exit_code.h"
#include "history_times.h"
#include "json_text.h"
#include "output_file.h"
#include "run_history.h"
#include "run_log.h"

namespace trash_panda::cli {

namespace {

enum class DocumentKind { kPlan, kHardware, kRunLog };

struct DiffInput {
  std::string_view name;
  std::string text;
  DocumentKind kind = DocumentKind::kPlan;
};

std::string_view kind_name(DocumentKind kind) {
  return kind == DocumentKind::kPlan       ? "plan"
         : kind == DocumentKind::kHardware ? "hardware"
                                           : "run log";
}

std::string_view spoken_kind(DocumentKind kind) {
  return kind == DocumentKind::kPlan       ? "a plan"
         : kind == DocumentKind::kHardware ? "a machine"
                                           : "a run log";
}

/// TOML is a plan; JSON is a machine as one document, a run log where each line is one.
DocumentKind kind_of(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || text[begin] != '{') {
    return DocumentKind::kPlan;
  }
  const std::string_view first_line = text.substr(begin, text.find('\n', begin) - begin);
  const Json record = is_json_too_deep(first_line)
                          ? Json(Json::value_t::discarded)
                          : Json::parse(first_line, nullptr, /*allow_exceptions=*/false);
  return record.is_object() && record.contains("type") ? DocumentKind::kRunLog
                                                       : DocumentKind::kHardware;
}

Result<DiffInput> read_diff_input(const Setting& setting) {
  DiffInput input{.name = input_name(setting.text), .text = {}};
  TP_ASSIGN_OR_RETURN(input.text, read_small_input(setting.text, kRunLogBytesMax));
  input.kind = kind_of(input.text);
  return input;
}

/// Where the time of a typical pass went, in all and block by block.
Result<Json> run_document(const DiffInput& input) {
  TP_ASSIGN_OR_RETURN(const RunLog log, parse_run_log(input.text, input.name));
  TP_ASSIGN_OR_RETURN(const RunHistory history, parse_run_history(input.text, input.name));
  Json document = Json::object();
  std::map<std::string_view, const BlockTimes*> times_of;
  HistoryTimes times;
  if (!history.passes.empty()) {
    times = history_times(history);
    Json pass = {{"duration_s", times.pass_s},
                 {"read_bytes", static_cast<std::uint64_t>(times.read_bytes)}};
    for (const auto& [kind, seconds] : times.busy_s) {
      pass[kind + "_s"] = seconds;
    }
    for (const auto& [cause, seconds] : times.stalls_s) {
      pass["stalled_by_" + cause + "_s"] = seconds;
    }
    document["pass"] = std::move(pass);
    for (const BlockTimes& block : times.blocks) {
      times_of.emplace(block.block->name, &block);
    }
  }
  Json blocks = Json::array();
  for (const auto& [name, seconds] : median_compute_s(log)) {
    Json block = {{"name", name}, {"compute_s", seconds}};
    if (const auto found = times_of.find(name); found != times_of.end()) {
      block["tier"] = found->second->block->tier;
      block["stall_s"] = found->second->stall_s;
    }
    blocks.push_back(std::move(block));
  }
  document["block"] = std::move(blocks);
  return document;
}

Result<Comparison> compare(const DiffInput& first, const DiffInput& second) {
  switch (first.kind) {
    case DocumentKind::kPlan: {
      TP_ASSIGN_OR_RETURN(const plan::Plan a, plan::parse_plan_toml(first.text, first.name));
      TP_ASSIGN_OR_RETURN(const plan::Plan b, plan::parse_plan_toml(second.text, second.name));
      return compare_documents(Json::parse(plan::plan_file_json(a)),
                               Json::parse(plan::plan_file_json(b)));
    }
    case DocumentKind::kHardware: {
      TP_ASSIGN_OR_RETURN(const plan::Hardware a, plan::parse_hardware(first.text, first.name));
      TP_ASSIGN_OR_RETURN(const plan::Hardware b, plan::parse_hardware(second.text, second.name));
      return compare_documents(Json::parse(plan::write_hardware(a)),
                               Json::parse(plan::write_hardware(b)));
    }
    case DocumentKind::kRunLog: {
      TP_ASSIGN_OR_RETURN(const Json a, run_document(first));
      TP_ASSIGN_OR_RETURN(const Json b, run_document(second));
      return compare_documents(a, b);
    }
  }
  return Comparison();
}

}  // namespace

Result<int> run_diff(const DiffOptions& options, Console& console) {
  if (options.first.text == "-" && options.second.text == "-") {
    return std::unexpected(Error(ErrorCode::kUsage, "A and B can't both be stdin"));
  }
  TP_ASSIGN_OR_RETURN(const DiffInput first, read_diff_input(options.first));
  TP_ASSIGN_OR_RETURN(const DiffInput second, read_diff_input(options.second));
  if (first.kind != second.kind) {
    return std::unexpected(
        Error(ErrorCode::kUsage,
              fmt::format("{} is {}, {} is {}", printable(first.name), spoken_kind(first.kind),
                          printable(second.name), spoken_kind(second.kind)))
            .with_hint("two plans, two machines of hwreport --json, or two run logs"));
  }
  TP_ASSIGN_OR_RETURN(const Comparison comparison, compare(first, second));
  TP_RETURN_IF_ERROR(
      console.print(console.json() ? comparison_json(comparison, {.kind = kind_name(first.kind),
                                                                  .first = options.first.text,
                                                                  .second = options.second.text})
                                   : comparison_text(comparison)));
  return comparison.differences.empty() ? kExitOk : kExitDiffers;
}

}  // namespace trash_panda::cli
