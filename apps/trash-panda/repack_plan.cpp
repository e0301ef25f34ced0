#include "repack_plan.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"
#include "trash_panda/plan/pack_layout.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/plan/planner.h"
#include "trash_panda/runtime/probe.h"

#include "output_file.h"

namespace trash_panda::cli {

namespace {

/// A block takes some hundred bytes of a plan: this is a model of 100,000 blocks.
constexpr std::uint64_t kPlanBytesMax = 64 * kMiB;

/// The numbered prefixes of a plan's blocks: what the plan was made with, --group included, is
/// found again whatever the search would say.
std::vector<std::string> groups_of(const plan::Plan& plan) {
  std::vector<std::string> groups;
  for (const plan::PlannedBlock& block : plan.blocks) {
    const std::string prefix(group_prefix(block.name));
    if (std::ranges::find(groups, prefix) == groups.end()) {
      groups.push_back(prefix);
    }
  }
  return groups;
}

Result<plan::Plan> plan_for_this_machine(const LoadedModel& model) {
  const plan::PlanRequest request;
  const plan::ModelSummary summary =
      plan::summarize_model(model.checkpoint, model.weights, model.blocks, request.compute_dtype);
  return plan::make_plan(summary, runtime::probe_hardware(), request);
}

}  // namespace

Result<RepackInput> load_repack_input(const RepackOptions& options,
                                      const std::filesystem::path& model_path, Console& console) {
  RepackInput input{
      .model = {}, .plan = {}, .plan_file = options.plan.text, .layout = {}, .warnings = {}};
  std::string plan_text;
  if (options.plan.given()) {
    TP_ASSIGN_OR_RETURN(plan_text, read_small_file(options.plan.text, kPlanBytesMax));
    TP_ASSIGN_OR_RETURN(input.plan, plan::parse_plan_toml(plan_text, options.plan.text));
  }
  TP_ASSIGN_OR_RETURN(input.model, load_model(model_path, groups_of(input.plan), console));
  input.warnings = input.model.warnings;
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
  if (options.plan.given()) {
    input.layout.plan_toml = std::move(plan_text);  // With the user's comments.
  }
  return input;
}

}  // namespace trash_panda::cli
