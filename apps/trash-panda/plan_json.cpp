#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "explain_report.h"
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
                                                   {"stored_bytes", plan.moved_bytes(tier)},
                                                   {"raw_bytes", plan.stored_bytes(tier)},
                                                   {"extent_bytes", plan.extent_bytes(tier)}};
  }
  return tiers;
}

Json blocks_json(const plan::Plan& plan) {
  Json blocks = Json::array();
  for (const plan::PlannedBlock& block : plan.blocks) {
    blocks.push_back({{"name", block.name},
                      {"tier", format::tier_name(block.tier)},
                      {"form", plan::storage_form_name(block.form)},
                      {"stored_bytes", block.moved_bytes()},
                      {"raw_bytes", block.stored_bytes},
                      {"extent_bytes", block.extent_bytes},
                      {"expanded_bytes", block.expanded_bytes},
                      {"expand_bytes", block.expand_bytes},
                      {"compute_s", plan.compute_source.empty() ? Json() : Json(block.compute_s)}});
  }
  return blocks;
}

Json rate_json(const std::optional<std::uint64_t>& measured) {
  return measured ? Json(*measured) : Json();
}

Json rates_json(const plan::Plan& plan) {
  return {{"disk_bytes_per_s", rate_json(plan.rates.disk_bytes_per_s)},
          {"disk_request_bytes", rate_json(plan.rates.disk_request_bytes)},
          {"disk_queue_depth", rate_json(plan.rates.disk_queue_depth)},
          {"decode_bytes_per_s", rate_json(plan.rates.decode_bytes_per_s)},
          {"expand_bytes_per_s", rate_json(plan.rates.expand_bytes_per_s)},
          {"link_bytes_per_s", rate_json(plan.rates.link_bytes_per_s)},
          {"compute_source", plan.compute_source.empty() ? Json() : Json(plan.compute_source)}};
}

Json slots_json(const plan::Plan& plan) {
  std::uint64_t device_bytes = 0;
  for (const plan::PlannedBlock& block : plan.blocks) {
    if (plan.uses_vram() && block.tier != Tier::kGpu) {
      device_bytes = std::max(device_bytes, block.waiting_bytes());
    }
  }
  device_bytes *= plan.device_slot_count;
  return {{"host_bytes", plan.slot_bytes},
          {"host_count", plan.host_slot_count},
          {"device_bytes", device_bytes},
          {"device_count", plan.device_slot_count}};
}

/// Null where a rate that it needs was not measured.
Json prediction_json(const plan::Plan& plan) {
  if (!plan.predicted) {
    return nullptr;
  }
  return {{"pass_s", plan.predicted->pass_s},
          {"bound_s", plan.predicted->bound_s},
          {"limiting", plan.predicted->limiting},
          {"stall_s", plan.predicted->stall_s},
          {"first_pass_s", plan.predicted->first_pass_s}};
}

/// What more memory would bring; null where nothing or where that is not known.
Json advice_json(const std::optional<plan::MemoryAdvice>& advice) {
  return advice ? Json{{"more_bytes", advice->more_bytes}, {"pass_s", advice->pass_s}} : Json();
}

}  // namespace

std::string plan_json(const PlanReport& report, const std::vector<std::string>& warnings,
                      std::string_view output) {
  const plan::Plan& plan = *report.plan;
  Json document = {
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
        {"compute_slot_bytes", plan.compute_slot_bytes},
        {"kv_cache_bytes", plan.kv_cache_bytes}}},
      {"fits", plan.fits()},
      {"settings",
       {{"compute_dtype", plan.compute_dtype}, {"lookahead_bytes", plan.lookahead_bytes}}},
      {"rates", rates_json(plan)},
      {"slots", slots_json(plan)},
      {"predicted", prediction_json(plan)},
      {"advice", {{"ram", advice_json(report.more_ram)}, {"vram", advice_json(report.more_vram)}}},
      {"demotion", {{"gpu", plan.demote_gpu}, {"ram", plan.demote_ram}}},
      {"tiers", tiers_json(plan)},
      {"blocks", blocks_json(plan)},
      {"warnings", warnings},
      {"output", output.empty() ? Json(nullptr) : Json(output)}};
  if (report.why) {
    document["why"] = explanations_json(plan, *report.why);
  }
  return json_document(document);
}

}  // namespace trash_panda::cli
