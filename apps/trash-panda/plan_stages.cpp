#include "plan_stages.h"

#include <algorithm>
#include <array>
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
#include "trash_panda/plan/stages.h"
#include "trash_panda/plan/stages_toml.h"

#include "output_file.h"
#include "plan_input.h"
#include "plan_task.h"
#include "stages_report.h"

namespace trash_panda::cli {

namespace {

/// A pipeline has a handful of stages.
constexpr std::uint64_t kStagesBytesMax = 1 * kMiB;

/// An option of `plan` that a stage may have for itself; one of the members is set.
struct StageOption {
  std::string_view key;
  Setting PlanOptions::* setting = nullptr;
  bool PlanOptions::* flag = nullptr;
  std::vector<std::string> PlanOptions::* list = nullptr;
};

constexpr std::array kStageOptions = {
    StageOption{.key = "max_ram", .setting = &PlanOptions::max_ram},
    StageOption{.key = "min_free_ram", .setting = &PlanOptions::min_free_ram},
    StageOption{.key = "max_pinned", .setting = &PlanOptions::max_pinned},
    StageOption{.key = "no_disk", .flag = &PlanOptions::no_disk},
    StageOption{.key = "gpu", .setting = &PlanOptions::gpu},
    StageOption{.key = "max_vram", .setting = &PlanOptions::max_vram},
    StageOption{.key = "headroom_vram", .setting = &PlanOptions::headroom_vram},
    StageOption{.key = "activation_vram", .setting = &PlanOptions::activation_vram},
    StageOption{.key = "resident_blocks", .setting = &PlanOptions::resident_blocks},
    StageOption{.key = "assign", .list = &PlanOptions::assignments},
    StageOption{.key = "lookahead", .setting = &PlanOptions::lookahead},
    StageOption{.key = "placement", .setting = &PlanOptions::placement},
    StageOption{.key = "compute_dtype", .setting = &PlanOptions::compute_dtype},
    StageOption{.key = "group", .list = &PlanOptions::groups},
    StageOption{.key = "context", .setting = &PlanOptions::context},
    StageOption{.key = "batch", .setting = &PlanOptions::batch},
    StageOption{.key = "kv_dtype", .setting = &PlanOptions::kv_dtype},
    StageOption{.key = "compute_ms", .setting = &PlanOptions::compute_ms},
    StageOption{.key = "profile", .setting = &PlanOptions::profile},
};

/// Options that are about one model and its plan file.
Result<void> refuse_other_options(const PlanOptions& options) {
  for (const Setting* setting : {&options.model, &options.from}) {
    if (setting->given()) {
      return std::unexpected(
          Error(ErrorCode::kUsage,
                fmt::format("--stages and {} exclude each other", setting->source))
              .with_hint("the file of --stages names the models"));
    }
  }
  if (options.output.given() && (options.output.text.empty() || options.output.text == "-")) {
    return std::unexpected(
        Error(ErrorCode::kUsage,
              fmt::format("{}: with --stages it names a folder", options.output.source))
            .with_hint("each stage's plan is written there as NAME.toml"));
  }
  return {};
}

/// A path of the file is relative to it; what is no path there is a name of the hub, or wrong.
std::string model_argument(const std::filesystem::path& file, const std::string& model) {
  std::error_code error;
  const std::filesystem::path beside = file.parent_path() / model;
  return std::filesystem::exists(beside, error) ? beside.native() : model;
}

/// The options of one stage: those of the command line, and over them its own.
Result<PlanOptions> options_of(const PlanOptions& options, const plan::StageEntry& entry) {
  PlanOptions own = options;
  const std::filesystem::path file = options.stages.text;
  const auto source = [&](std::string_view key) {
    return fmt::format("{} of stage {}", key, entry.name);
  };
  own.model = {.text = model_argument(file, entry.model), .source = source("model")};
  std::vector<std::string_view> seen;
  for (const auto& [key, text] : entry.options) {
    const auto* const option = std::ranges::find(kStageOptions, key, &StageOption::key);
    if (option->list != nullptr) {
      std::vector<std::string>& list = own.*(option->list);
      // The stage's own values replace those of the command line.
      if (std::ranges::find(seen, key) == seen.end()) {
        list.clear();
        seen.push_back(key);
      }
      list.push_back(text);
    } else if (option->flag != nullptr) {
      TP_ASSIGN_OR_RETURN(own.*(option->flag), flag_of({.text = text, .source = source(key)}));
    } else {
      own.*(option->setting) = {.text = text, .source = source(key)};
    }
  }
  return own;
}

Result<std::vector<plan::StageEntry>> read_stages(const Setting& file) {
  TP_ASSIGN_OR_RETURN(const std::string text, read_small_file(file.text, kStagesBytesMax));
  std::vector<std::string_view> keys;
  for (const StageOption& option : kStageOptions) {
    keys.push_back(option.key);
  }
  return plan::parse_stages_toml(text, file.text, keys);
}

std::filesystem::path plan_path(const PlanOptions& options, std::string_view stage_name) {
  return std::filesystem::path(options.output.text) / fmt::format("{}.toml", stage_name);
}

bool writes_plans(const PlanOptions& options) {
  return options.output.given() && !options.dry_run && !options.check;
}

/// Before anything is read or measured, so that it is not done in vain.
Result<void> check_outputs(const PlanOptions& options,
                           const std::vector<plan::StageEntry>& entries) {
  if (!writes_plans(options)) {
    return {};
  }
  std::error_code error;
  std::filesystem::create_directory(options.output.text, error);
  if (error) {
    return std::unexpected(Error::from_errno(
        error.value(),
        fmt::format("creating {}", printable(std::string_view(options.output.text)))));
  }
  for (const plan::StageEntry& entry : entries) {
    const std::filesystem::path path = plan_path(options, entry.name);
    TP_RETURN_IF_ERROR(
        check_output_file(path, options.force ? Overwrite::kReplace : Overwrite::kRefuse));
    TP_RETURN_IF_ERROR(check_replaceable_plan(path));
  }
  return {};
}

Result<void> write_plans(const PlanOptions& options,
                         const std::vector<plan::PlannedStage>& stages) {
  for (const plan::PlannedStage& stage : stages) {
    TP_RETURN_IF_ERROR(write_output_file(plan_path(options, stage.name),
                                         plan::write_plan_toml(stage.plan),
                                         options.force ? Overwrite::kReplace : Overwrite::kRefuse));
  }
  return {};
}

Error stages_do_not_fit(const std::vector<plan::PlannedStage>& stages) {
  std::string names;
  for (const plan::PlannedStage& stage : stages) {
    if (!stage.plan.fits()) {
      names += (names.empty() ? "" : ", ") + stage.name;
    }
  }
  return Error(ErrorCode::kDoesNotFit, fmt::format("stages that do not fit: {}", names))
      .with_hint("a smaller compute_dtype, or more memory");
}

}  // namespace

Result<void> run_plan_stages(const PlanOptions& options, Console& console) {
  TP_RETURN_IF_ERROR(refuse_other_options(options));
  TP_ASSIGN_OR_RETURN(const std::vector<plan::StageEntry> entries, read_stages(options.stages));
  TP_RETURN_IF_ERROR(check_outputs(options, entries));
  std::vector<plan::Stage> stages;
  std::vector<std::string> warnings;
  for (const plan::StageEntry& entry : entries) {
    const auto named = [&entry](Error error) {
      return std::unexpected(std::move(error).with_context(fmt::format("stage {}", entry.name)));
    };
    Result<PlanOptions> own = options_of(options, entry);
    if (!own) {
      return named(std::move(own).error());
    }
    Result<PlanTask> task = prepare_plan(*own, console);
    if (!task) {
      return named(std::move(task).error());
    }
    for (const std::vector<std::string>* list : {&task->model.warnings, &task->warnings}) {
      for (const std::string& warning : *list) {
        warnings.push_back(fmt::format("{}: {}", entry.name, warning));
      }
    }
    stages.push_back({.name = entry.name,
                      .model = std::move(task->summary),
                      .request = std::move(task->request),
                      .hardware = std::move(task->hardware),
                      .step_count = entry.step_count,
                      .stays_loaded = entry.stays_loaded});
  }
  TP_ASSIGN_OR_RETURN(const std::vector<plan::PlannedStage> planned, plan::plan_stages(stages));
  for (const plan::PlannedStage& stage : planned) {
    for (const std::string& warning : stage.plan.warnings) {
      warnings.push_back(fmt::format("{}: {}", stage.name, warning));
    }
  }
  if (writes_plans(options)) {
    TP_RETURN_IF_ERROR(write_plans(options, planned));
  }
  const StagesReport report = {.file = options.stages.text,
                               .entries = &entries,
                               .hardware = &stages.front().hardware,
                               .stages = &planned,
                               .output = writes_plans(options) ? options.output.text : ""};
  if (console.json()) {
    TP_RETURN_IF_ERROR(console.print(stages_json(report, warnings)));
  } else {
    TP_RETURN_IF_ERROR(console.print(stages_text(report, console)));
    for (const std::string& warning : warnings) {
      console.warn(warning);
    }
  }
  const bool all_fit = std::ranges::all_of(
      planned, [](const plan::PlannedStage& stage) { return stage.plan.fits(); });
  if (options.check && !all_fit) {
    return std::unexpected(stages_do_not_fit(planned));
  }
  return {};
}

}  // namespace trash_panda::cli
