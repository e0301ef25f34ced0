#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/plan/explanation.h"
#include "trash_panda/plan/planner.h"
#include "trash_panda/plan/prediction.h"

#include "commands.h"
#include "explain_report.h"
#include "json_text.h"
#include "plan_input.h"

namespace trash_panda::cli {

namespace {

/// Each block is simulated in two other tiers, with all others: more would take minutes.
constexpr std::size_t kExplainedPairsMax = 10'000'000;

Result<std::vector<std::size_t>> chosen_blocks(const ExplainOptions& options,
                                               const plan::Plan& plan) {
  if (!options.selector.given()) {
    return all_blocks(plan);
  }
  return plan::select_blocks(options.selector.text, plan.blocks);
}

}  // namespace

Result<void> run_explain(const ExplainOptions& options, Console& console) {
  TP_ASSIGN_OR_RETURN(plan::Plan plan, read_plan_input(options.plan.text));
  TP_ASSIGN_OR_RETURN(const std::vector<std::size_t> indexes, chosen_blocks(options, plan));
  if (indexes.size() * plan.blocks.size() > kExplainedPairsMax) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("{} of {} blocks are too many to explain at once",
                                             indexes.size(), plan.blocks.size()))
            .with_hint("choose some, such as 0-99"));
  }
  // What was predicted may be older than what someone changed by hand since.
  plan.predicted = plan::predict(plan);
  const std::vector<plan::BlockExplanation> blocks = plan::explain_blocks(plan, indexes);
  if (!console.json()) {
    return console.print(explain_text(plan, blocks));
  }
  const auto known = [&plan](auto value) {
    return plan.predicted ? Json(value(*plan.predicted)) : Json();
  };
  return console.print(
      json_document({{"schema", "trash-panda/explain/1"},
                     {"plan", options.plan.text},
                     {"pass_s", known([](const plan::Prediction& p) { return p.pass_s; })},
                     {"bound_s", known([](const plan::Prediction& p) { return p.bound_s; })},
                     {"limiting", known([](const plan::Prediction& p) { return p.limiting; })},
                     {"budget",
                      {{"ram_budget_bytes", plan.ram_budget_bytes},
                       {"ram_used_bytes", plan.ram_used_bytes()},
                       {"vram_budget_bytes", plan.vram_budget_bytes},
                       {"vram_used_bytes", plan.vram_used_bytes()}}},
                     {"blocks", explanations_json(plan, blocks)}}));
}

}  // namespace trash_panda::cli
