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

namespace trash_panda::cli {

namespace {

constexpr std::array<std::string_view, 4> kComputeDtypes = {"bf16", "fp16", "fp32", "keep"};
constexpr std::array<std::string_view, 2> kPlacements = {"cost", "greedy"};

Result<std::pair<plan::Tier, std::string>> parse_assignment(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::optional<plan::Tier> tier = format::parse_tier(text.substr(0, equals));
  if (equals == std::string::npos || !tier || *tier == plan::Tier::kBase ||
      equals + 1 == text.size()) {
    return std::unexpected(Error(ErrorCode::kUsage, fmt::format("--assign: '{}' is not TIER=SEL",
                                                                printable(std::string_view(text))))
                               .with_hint("such as gpu=0-7, ram=-1 or disk='blocks.*'"));
  }
  return std::pair(*tier, text.substr(equals + 1));
}

/// RAM that percentages are of: what this process may have.
std::uint64_t ram_limit_bytes(const plan::Hardware& hardware) {
  return std::min(hardware.ram_total_bytes,
                  hardware.cgroup_limit_bytes.value_or(hardware.ram_total_bytes));
}

}  // namespace

Result<std::string_view> compute_dtype_of(const Setting& setting) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> index, choice_of(setting, kComputeDtypes));
  return kComputeDtypes[index.value_or(0)];
}

Result<plan::PlanRequest> make_plan_request(const PlanOptions& options,
                                            const plan::Hardware& hardware) {
  plan::PlanRequest request;
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> gpu, count_of(options.gpu));
  request.gpu_index = gpu.value_or(0);
  if (gpu && *gpu >= hardware.gpus.size()) {
    const std::string found = hardware.gpus.empty()
                                  ? hardware.gpu_note
                                  : fmt::format("found {}", counted(hardware.gpus.size(), "GPU"));
    return std::unexpected(Error(ErrorCode::kDevice, fmt::format("{}: there is no GPU {} here: {}",
                                                                 options.gpu.source, *gpu, found)));
  }
  const std::uint64_t vram_bytes =
      hardware.gpus.empty() ? 0 : hardware.gpus[request.gpu_index].total_bytes;
  const std::uint64_t ram_bytes = ram_limit_bytes(hardware);
  TP_ASSIGN_OR_RETURN(request.max_vram_bytes, size_of(options.max_vram, vram_bytes));
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> headroom,
                      size_of(options.headroom_vram, vram_bytes));
  request.headroom_vram_bytes = headroom.value_or(request.headroom_vram_bytes);
  TP_ASSIGN_OR_RETURN(request.activation_vram_bytes, size_of(options.activation_vram, vram_bytes));
  TP_ASSIGN_OR_RETURN(request.max_ram_bytes, size_of(options.max_ram, ram_bytes));
  TP_ASSIGN_OR_RETURN(request.min_free_ram_bytes, size_of(options.min_free_ram, ram_bytes));
  request.allow_disk = !options.no_disk;
  TP_ASSIGN_OR_RETURN(request.resident_blocks, count_of(options.resident_blocks));
  TP_ASSIGN_OR_RETURN(request.lookahead_blocks, count_of(options.lookahead));
  TP_ASSIGN_OR_RETURN(const std::string_view compute_dtype,
                      compute_dtype_of(options.compute_dtype));
  request.compute_dtype = compute_dtype;
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> placement,
                      choice_of(options.placement, kPlacements));
  request.placement =
      placement == 1 ? plan::PlacementMethod::kGreedy : plan::PlacementMethod::kCost;
  TP_ASSIGN_OR_RETURN(const std::optional<double> compute_ms, number_of(options.compute_ms));
  if (compute_ms) {
    request.compute_s = *compute_ms / 1000;
  }
  for (const std::string& text : options.assignments) {
    TP_ASSIGN_OR_RETURN(auto assignment, parse_assignment(text));
    request.assignments.push_back(std::move(assignment));
  }
  return request;
}

}  // namespace trash_panda::cli
