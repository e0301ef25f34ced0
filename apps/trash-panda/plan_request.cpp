#include "plan_request.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "model_input.h"
#include "pack_forms.h"

namespace trash_panda::cli {

namespace {

constexpr std::array<std::string_view, 4> kComputeDtypes = {"bf16", "fp16", "fp32", "keep"};
constexpr std::array<std::string_view, 2> kPlacements = {"cost", "greedy"};
constexpr std::array<std::string_view, 4> kKvDtypes = {"bf16", "fp16", "fp32", "fp8"};

/// RAM that percentages are of: what this process may have.
std::uint64_t ram_limit_bytes(const plan::Hardware& hardware) {
  return std::min(hardware.ram_total_bytes,
                  hardware.cgroup_limit_bytes.value_or(hardware.ram_total_bytes));
}

/// Takes what an option says, "auto" included; what was not given stays as it is.
template <class T, class Parsed>
Result<void> override_by(const Setting& setting, const Parsed& parsed, std::optional<T>& target) {
  if (!parsed) {
    return std::unexpected(parsed.error());
  }
  if (setting.given()) {
    target = *parsed;
  }
  return {};
}

Result<void> override_budgets(const PlanOptions& options, const plan::Hardware& hardware,
                              plan::PlanRequest& request) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> gpu, count_of(options.gpu));
  request.gpu_index = gpu.value_or(options.gpu.given() ? 0 : request.gpu_index);
  if (gpu && *gpu >= hardware.gpus.size()) {
    const std::string found = hardware.gpus.empty()
                                  ? hardware.gpu_note
                                  : fmt::format("found {}", counted(hardware.gpus.size(), "GPU"));
    return std::unexpected(Error(ErrorCode::kDevice, fmt::format("{}: there is no GPU {} here: {}",
                                                                 options.gpu.source, *gpu, found)));
  }
  const std::uint64_t vram_bytes =
      request.gpu_index < hardware.gpus.size() ? hardware.gpus[request.gpu_index].total_bytes : 0;
  const std::uint64_t ram_bytes = ram_limit_bytes(hardware);
  const auto override_size = [](const Setting& setting, std::uint64_t whole_bytes,
                                std::optional<std::uint64_t>& target) {
    return override_by(setting, size_of(setting, whole_bytes), target);
  };
  TP_RETURN_IF_ERROR(override_size(options.max_vram, vram_bytes, request.max_vram_bytes));
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> headroom,
                      size_of(options.headroom_vram, vram_bytes));
  if (options.headroom_vram.given()) {
    request.headroom_vram_bytes = headroom.value_or(plan::kHeadroomVramBytes);
  }
  TP_RETURN_IF_ERROR(
      override_size(options.activation_vram, vram_bytes, request.activation_vram_bytes));
  TP_RETURN_IF_ERROR(override_size(options.max_ram, ram_bytes, request.max_ram_bytes));
  TP_RETURN_IF_ERROR(override_size(options.min_free_ram, ram_bytes, request.min_free_ram_bytes));
  TP_RETURN_IF_ERROR(override_size(options.max_pinned, ram_bytes, request.max_pinned_bytes));
  request.allow_disk = request.allow_disk && !options.no_disk;
  return {};
}

/// The times of --compute-ms replace a recorded profile; those of --profile, which are read once
/// the blocks are known, replace both.
Result<void> override_computation(const PlanOptions& options, plan::PlanRequest& request) {
  TP_ASSIGN_OR_RETURN(const std::optional<double> compute_ms, number_of(options.compute_ms));
  if (options.compute_ms.given() && options.profile.given()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("{} and {} both say how long the computation takes",
                                             options.compute_ms.source, options.profile.source)));
  }
  if (options.compute_ms.given()) {
    request.profile_s.reset();
    request.compute_s = compute_ms ? std::optional(*compute_ms / 1000) : std::nullopt;
  }
  return {};
}

Result<void> override_context(const PlanOptions& options, plan::PlanRequest& request) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> tokens, count_of(options.context));
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> batch, count_of(options.batch));
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> dtype,
                      choice_of(options.kv_dtype, kKvDtypes));
  if (options.context.given()) {
    request.kv_cache_bytes = 0;
    request.context.reset();
  }
  if (tokens) {
    request.context.emplace().context_tokens = *tokens;
  }
  if (request.context && options.batch.given()) {
    request.context->batch_size = batch.value_or(1);
  }
  if (request.context && dtype) {
    request.context->kv_dtype = kKvDtypes.at(*dtype);
  }
  for (const Setting* const setting : {&options.context, &options.batch}) {
    if (setting->given() && setting->text == "0") {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("{}: '0' is no KV cache", setting->source))
              .with_hint("leave it out where none is kept"));
    }
  }
  return {};
}

}  // namespace

Result<std::string_view> compute_dtype_of(const Setting& setting) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> index, choice_of(setting, kComputeDtypes));
  return kComputeDtypes[index.value_or(0)];
}
Result<plan::PlanRequest> make_plan_request(const PlanOptions& options,
                                            const plan::Hardware& hardware,
                                            plan::PlanRequest request) {
  request.forms = packable_forms(hardware);
  TP_RETURN_IF_ERROR(override_budgets(options, hardware, request));
  TP_RETURN_IF_ERROR(override_by(options.resident_blocks, count_of(options.resident_blocks),
                                 request.resident_blocks));
  TP_RETURN_IF_ERROR(
      override_by(options.lookahead, count_of(options.lookahead), request.lookahead_blocks));
  TP_ASSIGN_OR_RETURN(const std::string_view compute_dtype,
                      compute_dtype_of(options.compute_dtype));
  if (options.compute_dtype.given()) {
    request.compute_dtype = compute_dtype;
  }
  if (options.placement.given()) {
    TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> placement,
                        choice_of(options.placement, kPlacements));
    request.placement = *plan::parse_placement(kPlacements.at(placement.value_or(0)));
  }
  TP_RETURN_IF_ERROR(override_computation(options, request));
  TP_RETURN_IF_ERROR(override_context(options, request));
  for (const std::string& text : options.assignments) {
    Result<std::pair<plan::Tier, std::string>> assignment = plan::parse_assignment(text);
    if (!assignment) {
      return std::unexpected(std::move(assignment).error().with_context("--assign"));
    }
    request.assignments.push_back(*std::move(assignment));
  }
  if (!options.groups.empty()) {
    request.groups = options.groups;
  }
  return request;
}

}  // namespace trash_panda::cli
