#include "stages_report.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"

#include "json_text.h"
#include "model_input.h"
#include "plan_report.h"
#include "step_report.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

using plan::PlannedStage;

struct PipelineTotals {
  std::uint64_t ram_peak_bytes = 0;
  std::uint64_t vram_peak_bytes = 0;
  std::optional<double> predicted_s = 0;  ///< Nothing where a stage has no prediction.
  double saved_s = 0;
};

PipelineTotals add_up(const std::vector<PlannedStage>& stages) {
  PipelineTotals totals;
  for (const PlannedStage& stage : stages) {
    totals.ram_peak_bytes = std::max(totals.ram_peak_bytes, stage.ram_peak_bytes);
    totals.vram_peak_bytes = std::max(totals.vram_peak_bytes, stage.vram_peak_bytes);
    totals.saved_s += stage.preload.saved_s.value_or(0);
    totals.predicted_s = totals.predicted_s && stage.predicted_s
                             ? std::optional(*totals.predicted_s + *stage.predicted_s)
                             : std::nullopt;
  }
  return totals;
}

std::string stage_table(const std::vector<PlannedStage>& stages) {
  const bool has_vram = std::ranges::any_of(
      stages, [](const PlannedStage& stage) { return stage.vram_peak_bytes > 0; });
  std::vector<std::vector<std::string>> rows = {
      {"stage", "stored", "steps", "step", "in all", "RAM peak"}};
  if (has_vram) {
    rows.front().emplace_back("VRAM peak");
  }
  rows.front().emplace_back("blocks");
  for (const PlannedStage& stage : stages) {
    const std::optional<plan::Prediction>& predicted = stage.plan.predicted;
    std::vector<std::string>& row = rows.emplace_back();
    row = {stage.name + (stage.stays_loaded ? " (kept)" : ""),
           format_bytes(stage.plan.model_bytes),
           format_count(stage.step_count),
           predicted ? format_seconds(predicted->pass_s) : "-",
           stage.predicted_s ? format_seconds(*stage.predicted_s) : "-",
           format_bytes(stage.ram_peak_bytes)};
    if (has_vram) {
      row.push_back(format_bytes(stage.vram_peak_bytes));
    }
    row.push_back(tier_counts(stage.plan));
  }
  return format_table(has_vram ? "lrrrrrrl" : "lrrrrrl", rows);
}

/// "while encode runs: base and 12 of 57 blocks of denoise, 3.10 GB; 1.4 s less to wait".
std::string preload_lines(const std::vector<PlannedStage>& stages) {
  std::string lines;
  for (std::size_t at = 1; at < stages.size(); ++at) {
    const PlannedStage& stage = stages[at];
    const plan::Preload& preload = stage.preload;
    lines += fmt::format("while {} runs: ", stages[at - 1].name);
    if (preload.read_bytes == 0) {
      lines += fmt::format("nothing of {} can be loaded ahead\n", stage.name);
      continue;
    }
    lines += fmt::format("base and {} of {} of {} are loaded ahead, {}", preload.block_count,
                         counted(stage.plan.blocks.size(), "block"), stage.name,
                         format_bytes(preload.read_bytes));
    lines += preload.saved_s ? fmt::format("; {} less to wait\n", format_seconds(*preload.saved_s))
                             : "\n";
  }
  return lines;
}

Json optional_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Json tier_json(const plan::Plan& plan) {
  Json tiers;
  for (const plan::Tier tier : {plan::Tier::kGpu, plan::Tier::kRam, plan::Tier::kDisk}) {
    tiers[std::string(format::tier_name(tier))] = {{"block_count", plan.block_count(tier)},
                                                   {"stored_bytes", plan.moved_bytes(tier)},
                                                   {"raw_bytes", plan.stored_bytes(tier)}};
  }
  return tiers;
}

Json stage_json(const PlannedStage& stage, const plan::StageEntry& entry, std::string_view output) {
  const plan::Plan& plan = stage.plan;
  return {
      {"name", stage.name},
      {"model",
       {{"argument", entry.model},
        {"path", plan.model_path},
        {"fingerprint", plan.model_fingerprint},
        {"total_bytes", plan.model_bytes}}},
      {"step_count", stage.step_count},
      {"stays_loaded", stage.stays_loaded},
      {"fits", plan.fits()},
      {"tiers", tier_json(plan)},
      {"memory",
       {{"ram_budget_bytes", plan.ram_budget_bytes},
        {"ram_used_bytes", plan.ram_used_bytes()},
        {"ram_held_bytes", stage.held_ram_bytes},
        {"ram_peak_bytes", stage.ram_peak_bytes},
        {"vram_budget_bytes", plan.vram_budget_bytes},
        {"vram_used_bytes", plan.vram_used_bytes()},
        {"vram_held_bytes", stage.held_vram_bytes},
        {"vram_peak_bytes", stage.vram_peak_bytes}}},
      {"preload",
       {{"has_base", stage.preload.has_base},
        {"block_count", stage.preload.block_count},
        {"read_bytes", stage.preload.read_bytes},
        {"ram_bytes", stage.preload.ram_bytes},
        {"vram_bytes", stage.preload.vram_bytes},
        {"saved_s", optional_json(stage.preload.saved_s)}}},
      {"predicted",
       {{"pass_s", plan.predicted ? Json(plan.predicted->pass_s) : Json()},
        {"first_pass_s", plan.predicted ? Json(plan.predicted->first_pass_s) : Json()},
        {"stage_s", optional_json(stage.predicted_s)}}},
      {"output", output.empty() ? Json() : Json(fmt::format("{}/{}.toml", output, stage.name))}};
}

}  // namespace

std::string stages_text(const StagesReport& report, const Console& console) {
  const std::vector<PlannedStage>& stages = *report.stages;
  const PipelineTotals totals = add_up(stages);
  std::string text = fmt::format(
      "{}  {}\n\n{}\n{}", console.styled(Style::kBold, printable(std::string_view(report.file))),
      counted(stages.size(), "stage"), stage_table(stages), preload_lines(stages));
  text += fmt::format("peak RAM {}", format_bytes(totals.ram_peak_bytes));
  if (totals.vram_peak_bytes > 0) {
    text += fmt::format("   peak VRAM {}", format_bytes(totals.vram_peak_bytes));
  }
  if (totals.predicted_s) {
    text += fmt::format("   predicted {}", format_seconds(*totals.predicted_s));
  }
  return text + "\n";
}

std::string stages_json(const StagesReport& report, const std::vector<std::string>& warnings) {
  const PipelineTotals totals = add_up(*report.stages);
  Json stages = Json::array();
  for (std::size_t at = 0; at < report.stages->size(); ++at) {
    stages.push_back(stage_json((*report.stages)[at], (*report.entries)[at], report.output));
  }
  const Json document = {{"schema", "trash-panda/stages/1"},
                         {"file", report.file},
                         {"stages", stages},
                         {"ram_peak_bytes", totals.ram_peak_bytes},
                         {"vram_peak_bytes", totals.vram_peak_bytes},
                         {"predicted_s", optional_json(totals.predicted_s)},
                         {"saved_s", totals.predicted_s ? Json(totals.saved_s) : Json()},
                         {"warnings", warnings}};
  return json_document(document);
}

}  // namespace trash_panda::cli
