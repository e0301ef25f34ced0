#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/prediction.h"

#include "commands.h"
#include "json_text.h"
#include "model_input.h"
#include "output_file.h"
#include "pass_trace.h"
#include "plan_input.h"
#include "simulation_settings.h"
#include "step_report.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

/// Traces of plans that can be read: some hundred bytes for each of a million blocks.
constexpr std::uint64_t kTraceBytesMax = 1024 * kMiB;
/// Blocks with the longest stalls that are listed.
constexpr std::size_t kStallsShown = 5;

struct CaseResult {
  SimulationCase input;
  plan::Prediction predicted;
};

Result<CaseResult> predict_case(SimulationCase input, std::string_view file) {
  const std::vector<plan::Channel> missing = plan::missing_rates(input.plan);
  std::vector<std::string> keys;
  for (const plan::Channel channel : missing) {
    keys.push_back(fmt::format("{}_bytes_per_s", plan::channel_name(channel)));
  }
  if (!keys.empty()) {
    return std::unexpected(
        Error(ErrorCode::kUsage,
              fmt::format("{} was made without {}", printable(file), fmt::join(keys, " and ")))
            .with_hint(fmt::format("--hw FILE or --set {}=… says it", keys.front())));
  }
  const std::optional<plan::Prediction> predicted = plan::predict(input.plan);
  if (!predicted) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("nothing in {} takes time", printable(file)))
            .with_hint("--set compute_ms=… says how long the computation takes"));
  }
  return CaseResult{.input = std::move(input), .predicted = *predicted};
}

std::string case_table(const std::vector<CaseResult>& results) {
  std::vector<std::string> head;
  std::string alignment;
  for (const auto& [key, value] : results.front().input.settings) {
    head.push_back(key);
    alignment += 'r';
  }
  for (const char* const column : {"step", "bound", "limited by", "stalls", "first pass"}) {
    head.emplace_back(column);
    alignment += std::string_view(column) == "limited by" ? 'l' : 'r';
  }
  std::vector<std::vector<std::string>> rows = {head};
  for (const CaseResult& result : results) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const auto& [key, value] : result.input.settings) {
      row.push_back(printable(value));
    }
    row.push_back(format_seconds(result.predicted.pass_s));
    row.push_back(format_seconds(result.predicted.bound_s));
    row.push_back(result.predicted.limiting);
    row.push_back(format_seconds(result.predicted.stall_s));
    row.push_back(result.predicted.first_pass_s > 0 ? format_seconds(result.predicted.first_pass_s)
                                                    : "-");
  }
  return format_table(alignment, rows);
}

/// Where a pass waits longest, and for what.
std::string stall_table(const plan::Plan& plan) {
  const plan::Simulation simulation = plan::simulate(plan::pass_model(plan));
  std::vector<std::size_t> order;
  for (std::size_t index = 0; index < simulation.blocks.size(); ++index) {
    if (simulation.blocks[index].stall_s > simulation.pass_s * 1e-6) {
      order.push_back(index);
    }
  }
  std::ranges::stable_sort(order, std::ranges::greater(), [&simulation](std::size_t index) {
    return simulation.blocks[index].stall_s;
  });
  order.resize(std::min(order.size(), kStallsShown));
  if (order.empty()) {
    return {};
  }
  std::vector<std::vector<std::string>> rows = {{"block", "tier", "waits", "for"}};
  for (const std::size_t index : order) {
    const plan::PlannedBlock& block = plan.blocks[index];
    rows.push_back({printable(block.name), std::string(format::tier_name(block.tier)),
                    format_seconds(simulation.blocks[index].stall_s),
                    std::string(plan::channel_name(simulation.blocks[index].stalled_by))});
  }
  return "\n" + format_table("llrl", rows);
}

Json timeline_json(const plan::Plan& plan) {
  const plan::Simulation simulation = plan::simulate(plan::pass_model(plan));
  Json blocks = Json::array();
  for (std::size_t index = 0; index < plan.blocks.size(); ++index) {
    const plan::BlockTimes& times = simulation.blocks[index];
    blocks.push_back(
        {{"name", plan.blocks[index].name},
         {"tier", format::tier_name(plan.blocks[index].tier)},
         {"read_begin_s", times.read_begin_s},
         {"read_end_s", times.read_end_s},
         {"decode_end_s", times.decode_end_s},
         {"copy_begin_s", times.copy_begin_s},
         {"copy_end_s", times.copy_end_s},
         {"compute_begin_s", times.compute_begin_s},
         {"compute_end_s", times.compute_end_s},
         {"stall_s", times.stall_s},
         {"stalled_by", times.stall_s > 0 ? Json(plan::channel_name(times.stalled_by)) : Json()}});
  }
  return blocks;
}

std::string simulation_json(std::string_view file, const std::vector<CaseResult>& results) {
  Json runs = Json::array();
  for (const CaseResult& result : results) {
    Json settings = Json::object();
    for (const auto& [key, value] : result.input.settings) {
      settings[key] = value;
    }
    runs.push_back({{"set", settings},
                    {"pass_s", result.predicted.pass_s},
                    {"bound_s", result.predicted.bound_s},
                    {"limiting", result.predicted.limiting},
                    {"stall_s", result.predicted.stall_s},
                    {"first_pass_s", result.predicted.first_pass_s},
                    {"blocks", timeline_json(result.input.plan)}});
  }
  return json_document(
      {{"schema", "trash-panda/simulate/1"}, {"plan", std::string(file)}, {"runs", runs}});
}

/// Whether FILE of --trace may be written, before anything is simulated: -f replaces traces only,
/// so that a mistyped name never costs anyone a plan or a model.
Result<void> check_trace_options(const SimulateOptions& options, const Console& console) {
  const std::string& file = options.trace.text;
  if (!options.trace.given()) {
    return {};
  }
  if (file.empty()) {
    return std::unexpected(Error(ErrorCode::kUsage, "--trace: an empty name")
                               .with_hint("give a file name, or - for stdout"));
  }
  if (file == "-") {
    return console.json()
               ? std::unexpected(Error(ErrorCode::kUsage, "--trace - and --json both want stdout")
                                     .with_hint("choose one"))
               : Result<void>();
  }
  TP_RETURN_IF_ERROR(
      check_output_file(file, options.force ? Overwrite::kReplace : Overwrite::kRefuse));
  std::error_code error;
  if (!std::filesystem::exists(file, error)) {
    return {};
  }
  const Result<std::string> text = read_small_file(file, kTraceBytesMax);
  if (text && (text->empty() || text->starts_with(kTraceStart))) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kOutput, fmt::format("{} is no trace of trash-panda", printable(file)))
          .with_hint("-f replaces traces only: choose another name, or remove it first"));
}

Result<void> write_trace(const SimulateOptions& options, const std::vector<CaseResult>& results,
                         Console& console) {
  if (results.size() != 1) {
    return std::unexpected(
        Error(ErrorCode::kUsage,
              fmt::format("--trace shows one pass, --set asks for {}", results.size()))
            .with_hint("give each key of --set one value"));
  }
  const std::string text = pass_trace(results.front().input.plan);
  if (options.trace.text == "-") {
    return console.print(text);
  }
  return write_output_file(options.trace.text, text,
                           options.force ? Overwrite::kReplace : Overwrite::kRefuse);
}

}  // namespace

Result<void> run_simulate(const SimulateOptions& options, Console& console) {
  TP_RETURN_IF_ERROR(check_trace_options(options, console));
  const std::string file(input_name(options.plan.text));
  TP_ASSIGN_OR_RETURN(plan::Plan plan, read_plan_input(options.plan.text));
  if (options.hardware.given()) {
    TP_ASSIGN_OR_RETURN(const plan::Hardware hardware, read_hardware_input(options.hardware.text));
    use_hardware(hardware, plan);
  }
  TP_ASSIGN_OR_RETURN(std::vector<SimulationCase> cases,
                      list_simulation_cases(plan, options.settings));
  std::vector<CaseResult> results;
  for (SimulationCase& input : cases) {
    TP_ASSIGN_OR_RETURN(CaseResult result, predict_case(std::move(input), file));
    results.push_back(std::move(result));
  }
  if (options.trace.given()) {
    TP_RETURN_IF_ERROR(write_trace(options, results, console));
    if (options.trace.text == "-") {
      return {};
    }
  }
  if (console.json()) {
    return console.print(simulation_json(file, results));
  }
  std::string out = case_table(results);
  if (results.size() == 1) {
    out += stall_table(results.front().input.plan);
  }
  return console.print(out);
}

}  // namespace trash_panda::cli
