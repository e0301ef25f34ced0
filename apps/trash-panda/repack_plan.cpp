#include "repack_plan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/plan/pack_layout.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/plan/planner.h"
#include "trash_panda/runtime/probe.h"

#include "output_file.h"
#include "pack_forms.h"
#include "plan_input.h"

namespace trash_panda::cli {

namespace {

constexpr std::array<std::string_view, 4> kCompressWords = {"auto", "none", "exponent", "max"};
enum class Compress { kAuto, kNone, kExponent, kMax };

Result<Compress> compress_of(const Setting& setting) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> index, choice_of(setting, kCompressWords));
  constexpr std::array kWays = {Compress::kAuto, Compress::kNone, Compress::kExponent,
                                Compress::kMax};
  return kWays.at(index.value_or(0));
}

/// Decides which extents get codes. On its own: the blocks for which the plan says so. A
/// plan that was made without measured rates says nothing; then the blocks that are read in every
/// pass, since there a drive is what is waited for.
void choose_codecs(Compress compress, const plan::Plan& plan, format::PackLayout& layout) {
  std::map<std::string_view, plan::StorageForm> forms;
  for (const plan::PlannedBlock& block : plan.blocks) {
    const bool is_disk = block.tier == plan::Tier::kDisk;
    forms[block.name] = plan.predicted ? block.form
                        : is_disk      ? plan::StorageForm::kExponent
                                       : plan::StorageForm::kRaw;
  }
  for (format::ExtentLayout& extent : layout.extents) {
    if (compress == Compress::kExponent || compress == Compress::kMax) {
      extent.coded = format::CodedFloats::kAll;
      extent.rest =
          compress == Compress::kMax ? format::CodedRest::kZstd : format::CodedRest::kNone;
    } else if (compress == Compress::kAuto && extent.tier != format::Tier::kBase) {
      const auto form = forms.find(extent.name);
      const bool is_coded = form != forms.end() && form->second != plan::StorageForm::kRaw;
      const bool has_zstd = is_coded && form->second == plan::StorageForm::kZstd;
      extent.coded = is_coded ? format::CodedFloats::kBf16 : format::CodedFloats::kNone;
      extent.rest = has_zstd ? format::CodedRest::kZstd : format::CodedRest::kNone;
    }
  }
}

void warn_of_forms(RepackInput& input) {
  std::set<std::string_view> coded;
  for (const format::ExtentLayout& extent : input.layout.extents) {
    if (extent.coded != format::CodedFloats::kNone || extent.rest != format::CodedRest::kNone) {
      coded.insert(extent.name);
    }
  }
  for (std::string& warning : form_warnings(input.plan, coded)) {
    input.warnings.push_back(std::move(warning));
  }
}

Result<plan::Plan> plan_for_this_machine(const LoadedModel& model) {
  const plan::Hardware hardware = runtime::probe_hardware();
  plan::PlanRequest request;
  request.forms = packable_forms(hardware);
  const plan::ModelSummary summary =
      plan::summarize_model(model.checkpoint, model.weights, model.blocks, request.compute_dtype);
  return plan::make_plan(summary, hardware, request);
}

/// Blocks of a tier as --assign would have them: "ram=0,1,7".
void assign_tier(const plan::Plan& plan, plan::Tier tier, plan::PlanRequest& request) {
  std::vector<std::size_t> indexes;
  for (std::size_t index = 0; index < plan.blocks.size(); ++index) {
    if (plan.blocks[index].tier == tier) {
      indexes.push_back(index);
    }
  }
  if (!indexes.empty()) {
    request.assignments.emplace_back(tier, fmt::format("{}", fmt::join(indexes, ",")));
  }
}

/// Plans the same tiers under the same budgets anew, from the checkpoint's own sizes: what a plan
/// says of them may have been true before someone edited it.
Result<plan::Plan> replan(const plan::Plan& plan, const plan::ModelSummary& summary) {
  plan::Hardware hardware;
  hardware.ram_total_bytes = std::max(plan.ram_limit_bytes, plan.ram_budget_bytes);
  plan::PlanRequest request;
  request.forms = packable_forms(hardware);
  request.max_ram_bytes = plan.ram_budget_bytes;
  request.max_vram_bytes = plan.vram_budget_bytes;
  request.compute_dtype = plan.compute_dtype;
  for (const plan::Tier tier : {plan::Tier::kGpu, plan::Tier::kRam, plan::Tier::kDisk}) {
    assign_tier(plan, tier, request);
  }
  return plan::make_plan(summary, hardware, request);
}

/// @retval kStale  A size in the plan is not the checkpoint's.
Result<void> check_sizes(const plan::Plan& plan, const plan::ModelSummary& summary) {
  const auto stale = [](std::string_view what, std::uint64_t found, std::uint64_t expected) {
    return std::unexpected(
        Error(ErrorCode::kStale,
              fmt::format("{} is {}, but by the checkpoint {}", printable(what), found, expected))
            .with_hint("make a new one with trash-panda plan; only tiers are to be edited"));
  };
  if (plan.base_bytes != summary.base_expanded_bytes) {
    return stale("base_bytes", plan.base_bytes, summary.base_expanded_bytes);
  }
  // make_pack_layout() has compared their number and names.
  for (std::size_t index = 0; index < plan.blocks.size(); ++index) {
    const plan::PlannedBlock& block = plan.blocks[index];
    const plan::PlannedBlock& actual = summary.blocks[index];
    if (block.extent_bytes != actual.extent_bytes) {
      return stale("extent_bytes of " + block.name, block.extent_bytes, actual.extent_bytes);
    }
    if (block.expanded_bytes != actual.expanded_bytes) {
      return stale("expanded_bytes of " + block.name, block.expanded_bytes, actual.expanded_bytes);
    }
  }
  return {};
}

/// Checks a plan from a file, which someone may have edited: its tiers are obeyed, with a warning
/// where they no longer fit.
Result<void> check_plan_file(RepackInput& input) {
  const plan::ModelSummary summary = plan::summarize_model(
      input.model.checkpoint, input.model.weights, input.model.blocks, input.plan.compute_dtype);
  TP_RETURN_IF_ERROR(check_sizes(input.plan, summary));
  const Result<plan::Plan> again = replan(input.plan, summary);
  if (!again) {
    input.warnings.push_back(
        fmt::format("{}: {}", printable(input.plan_file), again.error().message()));
  } else if (!input.plan.fits()) {
    input.warnings.push_back(fmt::format(
        "{}: the plan takes {} of {} RAM and {} of {} VRAM", printable(input.plan_file),
        format_bytes(input.plan.ram_used_bytes()), format_bytes(input.plan.ram_budget_bytes),
        format_bytes(input.plan.vram_used_bytes()), format_bytes(input.plan.vram_budget_bytes)));
  }
  return {};
}

/// Lays the pack out for the plan of an interrupted run, if there is one for this checkpoint.
/// @return Whether there was.
bool take_interrupted_plan(const std::filesystem::path& staged, RepackInput& input) {
  if (!format::pack_can_resume(staged)) {
    return false;
  }
  const std::filesystem::path file = format::partial_pack_path(staged) / format::kPackPlanName;
  Result<std::string> text = read_small_file(file, kPlanInputBytesMax);
  if (!text) {
    return false;
  }
  Result<plan::Plan> plan = plan::parse_plan_toml(*text, file.native());
  if (!plan) {
    return false;
  }
  Result<format::PackLayout> layout = plan::make_pack_layout(
      *plan, input.model.checkpoint, input.model.weights, input.model.blocks);
  if (!layout) {
    return false;
  }
  input.plan = *std::move(plan);
  input.layout = *std::move(layout);
  input.layout.plan_toml = *std::move(text);
  input.takes_on = true;
  return true;
}

}  // namespace

Result<RepackInput> load_repack_input(const RepackOptions& options,
                                      const std::filesystem::path& model_path,
                                      const std::filesystem::path& staged, Console& console) {
  TP_ASSIGN_OR_RETURN(const Compress compress, compress_of(options.compress));
  RepackInput input{
      .model = {}, .plan = {}, .plan_file = options.plan.text, .layout = {}, .warnings = {}};
  std::string plan_text;
  if (options.plan.given()) {
    TP_ASSIGN_OR_RETURN(plan_text, read_small_file(options.plan.text, kPlanInputBytesMax));
    TP_ASSIGN_OR_RETURN(input.plan, plan::parse_plan_toml(plan_text, options.plan.text));
  }
  TP_ASSIGN_OR_RETURN(input.model, load_model(model_path, input.plan.groups(), console));
  TP_RETURN_IF_ERROR(format::check_packable(input.model.checkpoint));
  input.warnings = input.model.warnings;
  if (!options.plan.given() && !options.no_resume && take_interrupted_plan(staged, input)) {
    choose_codecs(compress, input.plan, input.layout);
    warn_of_forms(input);
    return input;
  }
  if (!options.plan.given()) {
    TP_ASSIGN_OR_RETURN(input.plan, plan_for_this_machine(input.model));
    input.warnings.insert(input.warnings.end(), input.plan.warnings.begin(),
                          input.plan.warnings.end());
  }
  Result<format::PackLayout> layout = plan::make_pack_layout(
      input.plan, input.model.checkpoint, input.model.weights, input.model.blocks);
  if (!layout) {
    return std::unexpected(options.plan.given()
                               ? std::move(layout).error().with_context(options.plan.text)
                               : std::move(layout).error());
  }
  input.layout = *std::move(layout);
  choose_codecs(compress, input.plan, input.layout);
  warn_of_forms(input);
  if (options.plan.given()) {
    if (Result<void> checked = check_plan_file(input); !checked) {
      return std::unexpected(std::move(checked).error().with_context(printable(options.plan.text)));
    }
    input.layout.plan_toml = std::move(plan_text);  // With the user's comments.
  }
  return input;
}

}  // namespace trash_panda::cli
