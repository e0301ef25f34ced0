#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/plan/advice.h"
#include "trash_panda/plan/explanation.h"
#include "trash_panda/plan/planner.h"

#include "commands.h"
#include "explain_report.h"
#include "model_input.h"
#include "output_file.h"
#include "plan_input.h"
#include "plan_report.h"
#include "plan_sources.h"
#include "plan_stages.h"
#include "plan_task.h"

namespace trash_panda::cli {

namespace {

bool writes_stdout(const PlanOptions& options) {
  return options.output.text == "-";
}

bool writes_file(const PlanOptions& options) {
  return options.output.given() && !writes_stdout(options) && !options.dry_run && !options.check;
}

Result<void> check_options(const PlanOptions& options, const Console& console) {
  if (options.output.given() && options.output.text.empty()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("{}: an empty name", options.output.source))
            .with_hint("give a file name, or - for stdout"));
  }
  if (writes_stdout(options) && console.json()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, "-o - and --json both want stdout").with_hint("choose one"));
  }
  if (writes_file(options)) {
    TP_RETURN_IF_ERROR(check_output_file(options.output.text,
                                         options.force ? Overwrite::kReplace : Overwrite::kRefuse));
    return check_replaceable_plan(options.output.text);
  }
  return {};
}

/// What to type next, with the same model and plan.
std::string next_line(const PlanOptions& options) {
  const std::string model = path_argument(options.model.text);
  if (writes_file(options)) {
    return fmt::format("next: trash-panda repack {} --plan {}", model,
                       path_argument(options.output.text));
  }
  return fmt::format(
      "next: the same with -o plan.toml, then trash-panda repack {} --plan plan.toml", model);
}

Error does_not_fit(const plan::Plan& plan, std::string_view model) {
  const bool lacks_vram = plan.vram_used_bytes() > plan.vram_budget_bytes;
  return Error(ErrorCode::kDoesNotFit,
               fmt::format("{} does not fit: it takes {} of {} RAM{}", model,
                           format_bytes(plan.ram_used_bytes()), format_bytes(plan.ram_budget_bytes),
                           plan.uses_vram() ? fmt::format(" and {} of {} VRAM",
                                                          format_bytes(plan.vram_used_bytes()),
                                                          format_bytes(plan.vram_budget_bytes))
                                            : std::string()))
      .with_shortage(lacks_vram ? Shortage{.needed_bytes = plan.vram_used_bytes(),
                                           .budget_bytes = plan.vram_budget_bytes}
                                : Shortage{.needed_bytes = plan.ram_used_bytes(),
                                           .budget_bytes = plan.ram_budget_bytes});
}

/// @param toml  The plan as its file has it.
Result<void> report_plan(const PlanOptions& options, const PlanReport& report,
                         const std::string& toml, Console& console) {
  std::vector<std::string> warnings = report.model->warnings;
  warnings.insert(warnings.end(), report.plan->warnings.begin(), report.plan->warnings.end());
  if (console.json()) {
    return console.print(
        plan_json(report, warnings, writes_file(options) ? options.output.text : std::string()));
  }
  TP_RETURN_IF_ERROR(console.print(writes_stdout(options) ? toml : plan_text(report, console)));
  for (const std::string& warning : warnings) {
    console.warn(warning);
  }
  const bool can_go_on = format::check_packable(report.model->checkpoint).has_value();
  if (!options.check && !writes_stdout(options) && can_go_on) {
    console.note(next_line(options));
  }
  return {};
}

/// Flags that this plan does not heed.
void warn_of_idle_flags(const PlanOptions& options, plan::Plan& plan) {
  if (options.hardware.given() && options.probe.given()) {
    plan.warnings.push_back(fmt::format(
        "{} has no effect: the machine of --hw can't be measured here", options.probe.source));
  }
  if (options.why && writes_stdout(options)) {
    plan.warnings.emplace_back("--why has no effect: -o - prints the plan's file and nothing else");
  }
  for (const Setting* setting : {&options.batch, &options.kv_dtype}) {
    if (setting->given() && !plan.request.context) {
      plan.warnings.push_back(fmt::format(
          "{} has no effect: --context says how long the KV cache is", setting->source));
    }
  }
  if (plan.uses_vram()) {
    return;
  }
  for (const Setting* setting :
       {&options.headroom_vram, &options.activation_vram, &options.max_pinned}) {
    if (setting->given()) {
      plan.warnings.push_back(
          fmt::format("{} has no effect: this plan uses no VRAM", setting->source));
    }
  }
}

}  // namespace

Result<void> run_plan(const PlanOptions& options, Console& console) {
  if (options.stages.given()) {
    return run_plan_stages(options, console);
  }
  if (!options.model.given()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, "MODEL is missing")
            .with_hint("MODEL is a .safetensors file, a folder, or org/name of the hub; --stages "
                       "FILE plans several"));
  }
  TP_RETURN_IF_ERROR(check_options(options, console));
  TP_RETURN_IF_ERROR(check_stdin_use(options));
  TP_ASSIGN_OR_RETURN(const PlanTask task, prepare_plan(options, console));
  TP_ASSIGN_OR_RETURN(plan::Plan plan, plan::make_plan(task.summary, task.hardware, task.request));
  plan.warnings.insert(plan.warnings.end(), task.warnings.begin(), task.warnings.end());
  warn_of_idle_flags(options, plan);
  const std::string toml = plan_file_text(plan, task.earlier);
  if (writes_file(options)) {
    TP_RETURN_IF_ERROR(write_output_file(options.output.text, toml,
                                         options.force ? Overwrite::kReplace : Overwrite::kRefuse));
  }
  PlanReport report{
      .model = &task.model,
      .hardware = &task.hardware,
      .plan = &plan,
      .more_ram = plan::advise_more_ram(task.summary, task.hardware, task.request, plan),
      .more_vram = plan::advise_more_vram(task.summary, task.hardware, task.request, plan),
      .why = {},
      .gpu_index = task.request.gpu_index,
      .model_argument = options.model.text};
  if (options.why) {
    report.why = plan::explain_blocks(plan, all_blocks(plan));
  }
  TP_RETURN_IF_ERROR(report_plan(options, report, toml, console));
  if (options.check && !plan.fits()) {
    return std::unexpected(does_not_fit(plan, printable(std::string_view(options.model.text)))
                               .with_hint("a smaller --compute-dtype, or more memory"));
  }
  return {};
}

}  // namespace trash_panda::cli
