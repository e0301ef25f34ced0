#include "plan_task.h"

#include <filesystem>
#include <utility>

#include "trash_panda/format/pack_writer.h"
#include "trash_panda/runtime/probe.h"

#include "measured_rates.h"
#include "plan_input.h"
#include "plan_request.h"

namespace trash_panda::cli {

namespace {

/// The machine that is planned for: this one, not yet measured, or that of --hw.
Result<plan::Hardware> plan_hardware(const PlanOptions& options) {
  return options.hardware.given() ? read_hardware_input(options.hardware.text)
                                  : runtime::probe_hardware();
}

}  // namespace

Result<PlanTask> prepare_plan(const PlanOptions& options, Console& console) {
  PlanTask task;
  TP_ASSIGN_OR_RETURN(const ProbeMode probe, probe_mode_of(options.probe));
  TP_ASSIGN_OR_RETURN(task.hardware, plan_hardware(options));
  TP_ASSIGN_OR_RETURN(task.earlier, read_earlier_plan(options.from));
  TP_ASSIGN_OR_RETURN(task.request,
                      make_plan_request(options, task.hardware, task.earlier.request));
  TP_ASSIGN_OR_RETURN(const std::filesystem::path path, find_model(options.model));
  TP_RETURN_IF_ERROR(refuse_pack(path));
  TP_ASSIGN_OR_RETURN(task.model, load_model(path, task.request.groups, console));
  TP_ASSIGN_OR_RETURN(task.warnings, measure_context(task.model.checkpoint, task.request));
  task.summary = plan::summarize_model(task.model.checkpoint, task.model.weights, task.model.blocks,
                                       task.request.compute_dtype);
  TP_RETURN_IF_ERROR(read_profile(options.profile, task.summary.blocks, task.request));
  if (!options.hardware.given()) {
    TP_RETURN_IF_ERROR(add_measured_rates({.path = path, .size_bytes = task.summary.total_bytes},
                                          probe, task.hardware, console));
  }
  if (const Result<void> packable = format::check_packable(task.model.checkpoint); !packable) {
    task.warnings.push_back(packable.error().to_string());
  }
  return task;
}

}  // namespace trash_panda::cli
