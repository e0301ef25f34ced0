#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/plan/kv_cache.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/plan/planner.h"

#include "plan_toml_texts.h"
#include "toml_library.h"
#include "toml_reader.h"

namespace trash_panda::plan {
namespace {

constexpr Presence kOptional = Presence::kOptional;

class PlanParser {
 public:
  explicit PlanParser(std::string_view where) : toml_(where) {}

  Result<Plan> parse(std::string_view text) {
    TP_ASSIGN_OR_RETURN(const toml::table document, toml_.parse(text));
    Plan plan;
    TP_RETURN_IF_ERROR(read_version(document));
    constexpr std::array<std::string_view, 10> kKnown{
        "version", "model",    "hardware",  "rates",    "budget",
        "request", "settings", "predicted", "demotion", "block"};
    TP_RETURN_IF_ERROR(toml_.check_keys(document, "at the top", kKnown));
    TP_RETURN_IF_ERROR(read_inputs(document, plan));
    TP_RETURN_IF_ERROR(read_blocks(document, plan));
    TP_RETURN_IF_ERROR(read_settings(document, plan));
    TP_RETURN_IF_ERROR(read_request(document, plan));
    TP_RETURN_IF_ERROR(read_prediction(document, plan));
    return plan;
  }

 private:
  Result<void> read_version(const toml::table& document) {
    const toml::node* const node = document.get("version");
    if (node == nullptr) {
      return std::unexpected(toml_.at(document.source(), "version is missing: this is no plan")
                                 .with_hint("`trash-panda plan MODEL -o FILE` writes one"));
    }
    std::uint64_t version = 0;
    TP_RETURN_IF_ERROR(toml_.read_value(*node, "version", &version));
    if (version != kPlanVersion) {
      return std::unexpected(
          toml_
              .at(node->source(),
                  fmt::format("plan version {}, this program reads {}", version, kPlanVersion))
              .with_code(version > kPlanVersion ? ErrorCode::kUnsupported : ErrorCode::kCorrupt));
    }
    return {};
  }

  /// Model, machine and budgets.
  Result<void> read_inputs(const toml::table& document, Plan& plan) {
    TP_RETURN_IF_ERROR(
        toml_.read_subtable(document, "model",
                            std::array{TomlField{"path", &plan.model_path},
                                       TomlField{"fingerprint", &plan.model_fingerprint},
                                       TomlField{"stored_bytes", &plan.model_bytes},
                                       TomlField{"tensor_count", &plan.tensor_count}}));
    TP_RETURN_IF_ERROR(
        toml_.read_subtable(document, "hardware",
                            std::array{TomlField{"ram_total_bytes", &plan.ram_total_bytes},
                                       TomlField{"ram_limit_bytes", &plan.ram_limit_bytes},
                                       TomlField{"ram_limit_source", &plan.ram_limit_source},
                                       TomlField{"gpu_name", &plan.gpu_name},
                                       TomlField{"vram_total_bytes", &plan.vram_total_bytes}}));
    TP_RETURN_IF_ERROR(toml_.read_optional_subtable(
        document, "rates",
        std::array{TomlField{"measured_at", &plan.measured_at, kOptional},
                   TomlField{"disk_bytes_per_s", &plan.rates.disk_bytes_per_s, kOptional},
                   TomlField{"disk_request_bytes", &plan.rates.disk_request_bytes, kOptional},
                   TomlField{"disk_queue_depth", &plan.rates.disk_queue_depth, kOptional},
                   TomlField{"decode_bytes_per_s", &plan.rates.decode_bytes_per_s, kOptional},
                   TomlField{"expand_bytes_per_s", &plan.rates.expand_bytes_per_s, kOptional},
                   TomlField{"link_bytes_per_s", &plan.rates.link_bytes_per_s, kOptional},
                   TomlField{"compute_source", &plan.compute_source, kOptional}}));
    plan.rates.forget_zeros();
    return toml_.read_subtable(
        document, "budget",
        std::array{TomlField{"ram_bytes", &plan.ram_budget_bytes},
                   TomlField{"vram_bytes", &plan.vram_budget_bytes},
                   TomlField{"base_bytes", &plan.base_bytes},
                   TomlField{"slot_bytes", &plan.slot_bytes},
                   TomlField{"compute_slot_bytes", &plan.compute_slot_bytes},
                   TomlField{"kv_cache_bytes", &plan.kv_cache_bytes, kOptional}});
  }

  /// Blocks are read before: `placed` has a letter for each.
  Result<void> read_settings(const toml::table& document, Plan& plan) {
    std::string placed;
    TP_RETURN_IF_ERROR(toml_.read_subtable(
        document, "settings",
        std::array{TomlField{"compute_dtype", &plan.compute_dtype},
                   TomlField{"lookahead_bytes", &plan.lookahead_bytes},
                   TomlField{"host_slot_count", &plan.host_slot_count, kOptional},
                   TomlField{"device_slot_count", &plan.device_slot_count, kOptional},
                   TomlField{"placed", &placed, kOptional}}));
    if (!parse_compute_dtype(plan.compute_dtype)) {
      return std::unexpected(toml_.at(document.at_path("settings.compute_dtype").node()->source(),
                                      "compute_dtype must be bf16, fp16, fp32 or keep"));
    }
    for (const char letter : placed) {
      const std::optional<Tier> tier = tier_of_letter(letter);
      if (!tier) {
        return std::unexpected(toml_.at(document.at_path("settings.placed").node()->source(),
                                        "placed must be letters g, r and d, one for each block"));
      }
      plan.placed.push_back(*tier);
    }
    return {};
  }

  Result<void> read_request(const toml::table& document, Plan& plan) {
    PlanRequest& request = plan.request;
    std::uint64_t gpu = 0;
    std::vector<std::string> assignments;
    std::string placement(placement_name(request.placement));
    std::optional<std::uint64_t> context_tokens;
    ContextRequest context;
    TP_RETURN_IF_ERROR(toml_.read_optional_subtable(
        document, "request",
        std::array{TomlField{"gpu", &gpu, kOptional},
                   TomlField{"max_vram_bytes", &request.max_vram_bytes, kOptional},
                   TomlField{"headroom_vram_bytes", &request.headroom_vram_bytes, kOptional},
                   TomlField{"activation_vram_bytes", &request.activation_vram_bytes, kOptional},
                   TomlField{"max_ram_bytes", &request.max_ram_bytes, kOptional},
                   TomlField{"min_free_ram_bytes", &request.min_free_ram_bytes, kOptional},
                   TomlField{"max_pinned_bytes", &request.max_pinned_bytes, kOptional},
                   TomlField{"allow_disk", &request.allow_disk, kOptional},
                   TomlField{"resident_blocks", &request.resident_blocks, kOptional},
                   TomlField{"assign", &assignments, kOptional},
                   TomlField{"lookahead_blocks", &request.lookahead_blocks, kOptional},
                   TomlField{"placement", &placement, kOptional},
                   TomlField{"context_tokens", &context_tokens, kOptional},
                   TomlField{"batch_size", &context.batch_size, kOptional},
                   TomlField{"kv_dtype", &context.kv_dtype, kOptional},
                   TomlField{"compute_s", &request.compute_s, kOptional},
                   TomlField{"groups", &request.groups, kOptional}}));
    const auto wrong = [&](std::string_view what) {
      return std::unexpected(toml_.at(document.get("request")->source(), what));
    };
    request.gpu_index = gpu;
    for (const std::string& text : assignments) {
      Result<std::pair<Tier, std::string>> assignment = parse_assignment(text);
      if (!assignment) {
        return wrong(fmt::format("assign: {}", assignment.error().message()));
      }
      request.assignments.push_back(*std::move(assignment));
    }
    const std::optional<PlacementMethod> method = parse_placement(placement);
    if (!method) {
      return wrong(fmt::format("placement must be cost or greedy, not {}", printable(placement)));
    }
    request.placement = *method;
    if (!kv_dtype_bytes(context.kv_dtype)) {
      return wrong(fmt::format("kv_dtype must be bf16, fp16, fp32 or fp8, not {}",
                               printable(context.kv_dtype)));
    }
    if (context_tokens) {
      context.context_tokens = *context_tokens;
      request.context = std::move(context);
    }
    // What a plan is made of is where it counts, and only there.
    request.compute_dtype = plan.compute_dtype;
    request.kv_cache_bytes = plan.kv_cache_bytes;
    if (plan.compute_source == kComputeProfiled) {
      std::vector<double>& profile_s = request.profile_s.emplace();
      for (const PlannedBlock& block : plan.blocks) {
        profile_s.push_back(block.compute_s);
      }
    }
    return {};
  }

  /// What was predicted, and who gives way: blocks are read before.
  Result<void> read_prediction(const toml::table& document, Plan& plan) {
    if (document.contains("predicted")) {
      Prediction& predicted = plan.predicted.emplace();
      TP_RETURN_IF_ERROR(toml_.read_subtable(
          document, "predicted",
          std::array{
              TomlField{"pass_s", &predicted.pass_s}, TomlField{"bound_s", &predicted.bound_s},
              TomlField{"limiting", &predicted.limiting}, TomlField{"stall_s", &predicted.stall_s},
              TomlField{"first_pass_s", &predicted.first_pass_s}}));
    }
    TP_RETURN_IF_ERROR(toml_.read_optional_subtable(
        document, "demotion",
        std::array{TomlField{"gpu", &plan.demote_gpu}, TomlField{"ram", &plan.demote_ram}}));
    for (const std::vector<std::uint64_t>* const order : {&plan.demote_gpu, &plan.demote_ram}) {
      for (const std::uint64_t index : *order) {
        if (index >= plan.blocks.size()) {
          return std::unexpected(toml_.at(document.get("demotion")->source(),
                                          fmt::format("there is no block {} to demote", index)));
        }
      }
    }
    return {};
  }

  Result<void> read_blocks(const toml::table& document, Plan& plan) {
    const toml::node* const node = document.get("block");
    if (node == nullptr) {
      return {};
    }
    const toml::array* const blocks = node->as_array();
    if (blocks == nullptr) {
      return std::unexpected(toml_.at(node->source(), "blocks are written as [[block]]"));
    }
    std::unordered_set<std::string> names;
    std::uint64_t blocks_bytes = 0;
    std::uint64_t memory_bytes = 0;
    for (const toml::node& item : *blocks) {
      if (!item.is_table()) {
        return std::unexpected(toml_.at(item.source(), "blocks are written as [[block]]"));
      }
      PlannedBlock block;
      TP_RETURN_IF_ERROR(toml_.read_table(
          *item.as_table(), "in [[block]]",
          std::array{TomlField{"name", &block.name}, TomlField{"tier", &block.tier},
                     TomlField{"stored_bytes", &block.stored_bytes},
                     TomlField{"extent_bytes", &block.extent_bytes},
                     TomlField{"expanded_bytes", &block.expanded_bytes},
                     TomlField{"expand_bytes", &block.expand_bytes, kOptional},
                     TomlField{"form", &block.form, kOptional},
                     TomlField{"coded_bytes", &block.coded_bytes, kOptional},
                     TomlField{"compute_s", &block.compute_s, kOptional}}));
      if (!names.insert(block.name).second) {
        return std::unexpected(toml_.at(
            item.source(), fmt::format("a second block is named {}", printable(block.name))));
      }
      blocks_bytes += block.stored_bytes;
      if (block.form != StorageForm::kRaw && block.coded_bytes == 0) {
        return std::unexpected(
            toml_.at(item.source(), "a block that is not raw needs its coded_bytes"));
      }
      memory_bytes += block.extent_bytes + block.coded_bytes + block.expanded_bytes;
      if (memory_bytes > kSizeBytesMax) {
        return std::unexpected(
            toml_.at(item.source(), "blocks add up to more than any machine holds"));
      }
      if (blocks_bytes > plan.model_bytes) {
        return std::unexpected(toml_.at(
            item.source(), fmt::format("up to here blocks add up to {} bytes, the model has {}",
                                       blocks_bytes, plan.model_bytes)));
      }
      plan.blocks.push_back(std::move(block));
    }
    return {};
  }

  TomlReader toml_;
};

}  // namespace

Result<Plan> parse_plan_toml(std::string_view text, std::string_view where) {
  return PlanParser(where).parse(text);
}

std::string plan_file_json(const Plan& plan) {
  const Result<toml::table> document = TomlReader("plan").parse(write_plan_toml(plan));
  TP_ASSERT(document);  // What is written here can be read.
  std::ostringstream text;
  text << toml::json_formatter(*document, toml::json_formatter::default_flags);
  return std::move(text).str();
}

}  // namespace trash_panda::plan
