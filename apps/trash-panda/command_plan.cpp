#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/plan/planner.h"
#include "trash_panda/runtime/probe.h"

#include "commands.h"
#include "model_input.h"
#include "output_file.h"
#include "plan_report.h"
#include "plan_request.h"

namespace trash_panda::cli {

namespace {

bool writes_stdout(const PlanOptions& options) {
  return options.output.text == "-";
}

bool writes_file(const PlanOptions& options) {
  return options.output.given() && !writes_stdout(options) && !options.dry_run && !options.check;
}

Result<void> check_options(const PlanOptions& options, const Console& console) {
  if (writes_stdout(options) && console.json()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, "-o - and --json both want stdout").with_hint("choose one"));
  }
  if (writes_file(options)) {
    return check_output_file(options.output.text,
                             options.force ? Overwrite::kReplace : Overwrite::kRefuse);
  }
  return {};
}

/// -f must never cost anyone a checkpoint.
Result<void> spare_the_model(const PlanOptions& options, const format::Checkpoint& checkpoint) {
  for (const format::CheckpointFile& file : checkpoint.files()) {
    std::error_code ignored;
    if (std::filesystem::equivalent(options.output.text, file.path, ignored)) {
      return std::unexpected(
          Error(ErrorCode::kOutput, fmt::format("{} is the model itself", printable(file.path)))
              .with_hint("choose another name with -o"));
    }
  }
  return {};
}

/// What to type next, with the same model and plan.
std::string next_line(const PlanOptions& options) {
  const std::string model = shell_quoted(options.model.text);
  if (writes_file(options)) {
    return fmt::format("next: trash-panda repack {} --plan {}", model,
                       shell_quoted(options.output.text));
  }
  return fmt::format(
      "next: the same with -o plan.toml, then trash-panda repack {} --plan plan.toml", model);
}

Error does_not_fit(const plan::Plan& plan, std::string_view model) {
  return Error(ErrorCode::kDoesNotFit,
               fmt::format("{} does not fit: it takes {} of {} RAM{}", model,
                           format_bytes(plan.ram_used_bytes()), format_bytes(plan.ram_budget_bytes),
                           plan.uses_vram() ? fmt::format(" and {} of {} VRAM",
                                                          format_bytes(plan.vram_used_bytes()),
                                                          format_bytes(plan.vram_budget_bytes))
                                            : std::string()));
}

Result<void> report_plan(const PlanOptions& options, const PlanReport& report, Console& console) {
  std::vector<std::string> warnings = report.model->warnings;
  warnings.insert(warnings.end(), report.plan->warnings.begin(), report.plan->warnings.end());
  if (console.json()) {
    return console.print(
        plan_json(report, warnings, writes_file(options) ? options.output.text : std::string()));
  }
  TP_RETURN_IF_ERROR(console.print(writes_stdout(options) ? plan::write_plan_toml(*report.plan)
                                                          : plan_text(report, console)));
  for (const std::string& warning : warnings) {
    console.warn(warning);
  }
  if (!options.check && !writes_stdout(options)) {
    console.note(next_line(options));
  }
  return {};
}

}  // namespace

Result<void> run_plan(const PlanOptions& options, Console& console) {
  TP_RETURN_IF_ERROR(check_options(options, console));
  // Options first: a mistyped one is told before anything is read.
  const plan::Hardware hardware = runtime::probe_hardware();
  TP_ASSIGN_OR_RETURN(const plan::PlanRequest request, make_plan_request(options, hardware));
  TP_ASSIGN_OR_RETURN(const std::filesystem::path path, find_model(options.model));
  TP_RETURN_IF_ERROR(refuse_pack(path));
  TP_ASSIGN_OR_RETURN(const LoadedModel model, load_model(path, options.groups, console));
  const plan::ModelSummary summary =
      plan::summarize_model(model.checkpoint, model.weights, model.blocks, request.compute_dtype);
  TP_ASSIGN_OR_RETURN(const plan::Plan plan, plan::make_plan(summary, hardware, request));
  if (writes_file(options)) {
    TP_RETURN_IF_ERROR(spare_the_model(options, model.checkpoint));
    TP_RETURN_IF_ERROR(write_output_file(options.output.text, plan::write_plan_toml(plan),
                                         options.force ? Overwrite::kReplace : Overwrite::kRefuse));
  }
  TP_RETURN_IF_ERROR(report_plan(options,
                                 {.model = &model,
                                  .hardware = &hardware,
                                  .plan = &plan,
                                  .gpu_index = request.gpu_index,
                                  .model_argument = options.model.text},
                                 console));
  if (options.check && !plan.fits()) {
    return std::unexpected(does_not_fit(plan, printable(std::string_view(options.model.text)))
                               .with_hint("a smaller --compute-dtype, or more memory"));
  }
  return {};
}

}  // namespace trash_panda::cli
