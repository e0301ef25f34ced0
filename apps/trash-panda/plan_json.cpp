#include <cstdint>
#include <string>

#include "json_text.h"
#include "plan_report.h"

namespace trash_panda::cli {

namespace {

using plan::Tier;

Json model_json(const PlanReport& report) {
  const plan::Plan& plan = *report.plan;
  Json groups = Json::array();
  for (const plan::BlockGroup& group : report.model->blocks.groups) {
    groups.push_back({{"prefix", group.prefix}, {"count", group.blocks.size()}});
  }
  return {{"path", plan.model_path},
          {"fingerprint", plan.model_fingerprint},
          {"total_bytes", plan.model_bytes},
          {"tensor_count", plan.tensor_count},
          {"formats", report.model->weights.formats},
          {"groups", groups}};
}

Json hardware_json(const PlanReport& report) {
  const plan::Hardware& hardware = *report.hardware;
  Json gpus = Json::array();
  for (const plan::GpuInfo& gpu : hardware.gpus) {
    gpus.push_back({{"name", gpu.name},
                    {"uuid", gpu.uuid},
                    {"total_bytes", gpu.total_bytes},
                    {"free_bytes", gpu.free_bytes}});
  }
  return {{"ram_total_bytes", hardware.ram_total_bytes},
          {"ram_available_bytes", hardware.ram_available_bytes},
          {"ram_limit_bytes", report.plan->ram_limit_bytes},
          {"ram_limit_source", report.plan->ram_limit_source},
          {"gpus", gpus},
          {"gpu_note", hardware.gpu_note}};
}

Json tiers_json(const plan::Plan& plan) {
  Json tiers;
  for (const Tier tier : {Tier::kGpu, Tier::kRam, Tier::kDisk}) {
    tiers[std::string(format::tier_name(tier))] = {{"block_count", plan.block_count(tier)},
                                                   {"stored_bytes", plan.stored_bytes(tier)},
                                                   {"extent_bytes", plan.extent_bytes(tier)}};
  }
  return tiers;
}

Json blocks_json(const plan::Plan& plan) {
  Json blocks = Json::array();
  for (const plan::PlannedBlock& block : plan.blocks) {
    blocks.push_back({{"name", block.name},
                      {"tier", format::tier_name(block.tier)},
                      {"stored_bytes", block.stored_bytes},
                      {"extent_bytes", block.extent_bytes},
                      {"expanded_bytes", block.expanded_bytes}});
  }
  return blocks;
}

}  // namespace

std::string plan_json(const PlanReport& report, const std::vector<std::string>& warnings,
                      std::string_view output) {
  const plan::Plan& plan = *report.plan;
  const Json document = {
      {"schema", "trash-panda/plan/1"},
      {"model", model_json(report)},
      {"hardware", hardware_json(report)},
      {"budget",
       {{"ram_budget_bytes", plan.ram_budget_bytes},
        {"ram_used_bytes", plan.ram_used_bytes()},
        {"vram_budget_bytes", plan.vram_budget_bytes},
        {"vram_used_bytes", plan.vram_used_bytes()},
        {"base_bytes", plan.base_bytes},
        {"slot_bytes", plan.slot_bytes},
        {"compute_slot_bytes", plan.compute_slot_bytes}}},
      {"fits", plan.fits()},
      {"settings",
       {{"compute_dtype", plan.compute_dtype}, {"lookahead_bytes", plan.lookahead_bytes}}},
      {"tiers", tiers_json(plan)},
      {"blocks", blocks_json(plan)},
      {"warnings", warnings},
      {"output", output.empty() ? Json(nullptr) : Json(output)}};
  return json_document(document);
}

}  // namespace trash_panda::cli
