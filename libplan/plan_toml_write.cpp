#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/units.h"
#include "trash_panda/format/tier.h"
#include "trash_panda/plan/plan_toml.h"

#include "plan_toml_texts.h"
#include "toml_comments.h"

namespace trash_panda::plan {
namespace {

/// Length of the UTF-8 sequence at the start of `text`, 0 when it is not valid.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t index) {
    return static_cast<unsigned>(static_cast<unsigned char>(text[index]));
  };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80                     ? 1
                             : first >= 0xC2 && first <= 0xDF ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || length > text.size()) {
    return 0;
  }
  for (std::size_t index = 1; index < length; ++index) {
    if ((byte(index) & 0xC0U) != 0x80U) {
      return 0;
    }
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  const unsigned second = length > 1 ? byte(1) : 0;
  const bool is_bad = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return is_bad ? 0 : length;
}

/// A TOML basic string. TOML is UTF-8: bytes of a path that are not become U+FFFD.
std::string quote(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const unsigned char first = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      quoted += "\xEF\xBF\xBD";
    } else if (first == '"' || first == '\\') {
      quoted += '\\';
      quoted += text[0];
    } else if (first < 0x20 || first == 0x7F) {
      fmt::format_to(std::back_inserter(quoted), "\\u{:04X}", first);
    } else {
      quoted += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  quoted += '"';
  return quoted;
}

/// A line of an amount that is not always known.
std::string rate_line(std::string_view key, std::optional<std::uint64_t> bytes_per_s) {
  return bytes_per_s
             ? fmt::format("{} = {}  # {}/s\n", key, *bytes_per_s, format_bytes(*bytes_per_s))
             : std::string();
}

/// A TOML float: shortest text that reads back as the same number.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string array_text(const std::vector<std::uint64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

/// One line with the amount for people behind it.
std::string size_line(std::string_view key, std::uint64_t bytes) {
  return fmt::format("{} = {}  # {}\n", key, bytes, format_bytes(bytes));
}

std::string optional_size_line(std::string_view key, std::optional<std::uint64_t> bytes) {
  return bytes ? size_line(key, *bytes) : std::string();
}

std::string optional_line(std::string_view key, std::optional<std::uint64_t> value) {
  return value ? fmt::format("{} = {}\n", key, *value) : std::string();
}

std::string texts_line(std::string_view key, const std::vector<std::string>& texts) {
  std::vector<std::string> quoted;
  for (const std::string& text : texts) {
    quoted.push_back(quote(text));
  }
  return texts.empty() ? std::string() : fmt::format("{} = [{}]\n", key, fmt::join(quoted, ", "));
}

/// What differs from the defaults. Compute dtype, KV cache and profile stand where they count.
std::string request_text(const PlanRequest& request) {
  std::string text = request.gpu_index > 0 ? fmt::format("gpu = {}\n", request.gpu_index) : "";
  text += optional_size_line("max_vram_bytes", request.max_vram_bytes);
  if (request.headroom_vram_bytes != kHeadroomVramBytes) {
    text += size_line("headroom_vram_bytes", request.headroom_vram_bytes);
  }
  text += optional_size_line("activation_vram_bytes", request.activation_vram_bytes);
  text += optional_size_line("max_ram_bytes", request.max_ram_bytes);
  text += optional_size_line("min_free_ram_bytes", request.min_free_ram_bytes);
  text += optional_size_line("max_pinned_bytes", request.max_pinned_bytes);
  text += request.allow_disk ? "" : "allow_disk = false\n";
  text += optional_line("resident_blocks", request.resident_blocks);
  std::vector<std::string> assignments;
  for (const auto& [tier, selector] : request.assignments) {
    assignments.push_back(fmt::format("{}={}", format::tier_name(tier), selector));
  }
  text += texts_line("assign", assignments);
  text += optional_line("lookahead_blocks", request.lookahead_blocks);
  if (request.placement != PlacementMethod::kCost) {
    text += fmt::format("placement = \"{}\"\n", placement_name(request.placement));
  }
  if (request.context) {
    text += fmt::format("context_tokens = {}\nbatch_size = {}\nkv_dtype = {}\n",
                        request.context->context_tokens, request.context->batch_size,
                        quote(request.context->kv_dtype));
  }
  if (request.compute_s) {
    text += fmt::format("compute_s = {}\n", float_text(*request.compute_s));
  }
  text += texts_line("groups", request.groups);
  return text.empty() ? text : fmt::format("\n{}\n[request]\n{}", kRequestRemark, text);
}

std::string rates_text(const Plan& plan) {
  std::string text = rate_line("disk_bytes_per_s", plan.rates.disk_bytes_per_s) +
                     optional_line("disk_request_bytes", plan.rates.disk_request_bytes) +
                     optional_line("disk_queue_depth", plan.rates.disk_queue_depth) +
                     rate_line("decode_bytes_per_s", plan.rates.decode_bytes_per_s) +
                     rate_line("expand_bytes_per_s", plan.rates.expand_bytes_per_s) +
                     rate_line("link_bytes_per_s", plan.rates.link_bytes_per_s);
  if (!plan.measured_at.empty()) {
    text = fmt::format("measured_at = {}\n", quote(plan.measured_at)) + text;
  }
  if (!plan.compute_source.empty()) {
    text += fmt::format("compute_source = {}\n", quote(plan.compute_source));
  }
  return text.empty() ? text : "\n[rates]\n" + text;
}

std::string prediction_text(const Plan& plan) {
  std::string text;
  if (plan.predicted) {
    text += fmt::format(
        "\n[predicted]\npass_s = {}\nbound_s = {}\nlimiting = {}\nstall_s = {}\n"
        "first_pass_s = {}\n",
        float_text(plan.predicted->pass_s), float_text(plan.predicted->bound_s),
        quote(plan.predicted->limiting), float_text(plan.predicted->stall_s),
        float_text(plan.predicted->first_pass_s));
  }
  if (!plan.demote_gpu.empty() || !plan.demote_ram.empty()) {
    text += fmt::format("\n{}\n[demotion]\ngpu = {}\nram = {}\n", kDemotionRemark,
                        array_text(plan.demote_gpu), array_text(plan.demote_ram));
  }
  return text;
}

std::string block_text(const PlannedBlock& block) {
  std::string text = fmt::format(
      "\n[[block]]\nname = {}\ntier = \"{}\"\nstored_bytes = {}\nextent_bytes = {}\n"
      "expanded_bytes = {}\n",
      quote(block.name), format::tier_name(block.tier), block.stored_bytes, block.extent_bytes,
      block.expanded_bytes);
  if (block.expand_bytes > 0) {
    text += fmt::format("expand_bytes = {}\n", block.expand_bytes);
  }
  if (block.form != StorageForm::kRaw) {
    text += fmt::format("form = \"{}\"\ncoded_bytes = {}\n", storage_form_name(block.form),
                        block.coded_bytes);
  }
  if (block.compute_s > 0) {
    text += fmt::format("compute_s = {}\n", float_text(block.compute_s));
  }
  return text;
}

}  // namespace

std::string write_plan_toml(const Plan& plan) {
  std::string text = fmt::format("{}\n{}\nversion = {}\n\n[model]\npath = {}\nfingerprint = {}\n",
                                 kPlanRemark, kRepackRemark, kPlanVersion, quote(plan.model_path),
                                 quote(plan.model_fingerprint));
  text += size_line("stored_bytes", plan.model_bytes);
  text += fmt::format("tensor_count = {}\n\n[hardware]\n", plan.tensor_count);
  text += size_line("ram_total_bytes", plan.ram_total_bytes);
  text += size_line("ram_limit_bytes", plan.ram_limit_bytes);
  text += fmt::format("ram_limit_source = {}\ngpu_name = {}\n", quote(plan.ram_limit_source),
                      quote(plan.gpu_name));
  text += size_line("vram_total_bytes", plan.vram_total_bytes);
  text += rates_text(plan);
  text += "\n[budget]\n";
  text += size_line("ram_bytes", plan.ram_budget_bytes);
  text += size_line("vram_bytes", plan.vram_budget_bytes);
  text += size_line("base_bytes", plan.base_bytes);
  text += size_line("slot_bytes", plan.slot_bytes);
  text += size_line("compute_slot_bytes", plan.compute_slot_bytes);
  if (plan.kv_cache_bytes > 0) {
    text += size_line("kv_cache_bytes", plan.kv_cache_bytes);
  }
  text += request_text(plan.request);
  text += fmt::format("\n[settings]\ncompute_dtype = {}\n", quote(plan.compute_dtype));
  text += size_line("lookahead_bytes", plan.lookahead_bytes);
  if (plan.host_slot_count > 0) {
    text += fmt::format("host_slot_count = {}\n", plan.host_slot_count);
  }
  if (plan.device_slot_count > 0) {
    text += fmt::format("device_slot_count = {}\n", plan.device_slot_count);
  }
  if (!plan.placed.empty()) {
    text += fmt::format("{}\nplaced = \"", kPlacedRemark);
    std::ranges::transform(plan.placed, std::back_inserter(text), letter_of_tier);
    text += "\"\n";
  }
  text += prediction_text(plan);
  for (const PlannedBlock& block : plan.blocks) {
    text += block_text(block);
  }
  return text;
}

std::string rewrite_plan_toml(const Plan& plan, std::string_view commented) {
  return keep_toml_comments(commented, write_plan_toml(plan), kWriterRemarks);
}

}  // namespace trash_panda::plan
