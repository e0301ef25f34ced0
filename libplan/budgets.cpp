#include "budgets.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "left_of.h"

namespace trash_panda::plan {
namespace {

// What is left to the system and to the process itself, tensors of activations included: 8 % of
// RAM, at least enough for a Python process with torch, at most what a desktop needs.
constexpr std::uint64_t kReservePercent = 8;
constexpr std::uint64_t kReserveBytesMin = 1 * kGiB;
constexpr std::uint64_t kReserveBytesMax = 4 * kGiB;

std::uint64_t automatic_ram_reserve(std::uint64_t limit_bytes) {
  const std::uint64_t reserve_bytes =
      std::clamp(limit_bytes / 100 * kReservePercent, kReserveBytesMin, kReserveBytesMax);
  // In a small container a fixed reserve would leave nothing.
  return std::min(reserve_bytes, limit_bytes / 2);
}

Result<void> derive_ram(const Hardware& hardware, const PlanRequest& request, Budgets& budgets) {
  budgets.ram_limit_bytes = hardware.ram_total_bytes;
  budgets.ram_limit_source = "ram";
  if (hardware.cgroup_limit_bytes &&
      (hardware.ram_total_bytes == 0 || *hardware.cgroup_limit_bytes < hardware.ram_total_bytes)) {
    budgets.ram_limit_bytes = *hardware.cgroup_limit_bytes;
    budgets.ram_limit_source = "cgroup";
  }
  const std::uint64_t limit_bytes = budgets.ram_limit_bytes;
  if (limit_bytes == 0 && !request.max_ram_bytes) {
    return std::unexpected(Error(ErrorCode::kDevice, "the size of RAM could not be found out")
                               .with_hint("--max-ram says how much the model may take"));
  }
  if (request.min_free_ram_bytes && limit_bytes > 0 && *request.min_free_ram_bytes >= limit_bytes) {
    return std::unexpected(Error(ErrorCode::kDoesNotFit,
                                 fmt::format("--min-free-ram {} leaves nothing of {} ({})",
                                             format_bytes(*request.min_free_ram_bytes),
                                             format_bytes(limit_bytes), budgets.ram_limit_source))
                               .with_hint("a smaller --min-free-ram helps")
                               .with_shortage({.needed_bytes = *request.min_free_ram_bytes,
                                               .budget_bytes = limit_bytes}));
  }
  budgets.ram.flag = request.min_free_ram_bytes && !request.max_ram_bytes
                         ? "a smaller --min-free-ram"
                         : "a larger --max-ram";
  budgets.ram.is_given = request.max_ram_bytes || request.min_free_ram_bytes;
  if (!request.max_ram_bytes) {
    budgets.ram.bytes = round_budget_down(left_of(
        limit_bytes, request.min_free_ram_bytes.value_or(automatic_ram_reserve(limit_bytes))));
    return {};
  }
  budgets.ram.bytes = *request.max_ram_bytes;
  const std::uint64_t most_bytes = left_of(limit_bytes, request.min_free_ram_bytes.value_or(0));
  if (limit_bytes > 0 && budgets.ram.bytes > most_bytes) {
    budgets.warnings.push_back(fmt::format(
        "--max-ram {} is more than the {} that can be had (limit {}, {}): planned with the latter",
        format_bytes(budgets.ram.bytes), format_bytes(most_bytes), format_bytes(limit_bytes),
        budgets.ram_limit_source));
    budgets.ram.bytes = most_bytes;
  }
  return {};
}

Error no_such_gpu(const Hardware& hardware, std::size_t index) {
  const std::string why = hardware.gpus.empty()
                              ? (hardware.gpu_note.empty() ? "no GPU found" : hardware.gpu_note)
                              : fmt::format("GPUs go from 0 to {}", hardware.gpus.size() - 1);
  return {ErrorCode::kDevice, fmt::format("--gpu {}: {}", index, why)};
}

Result<void> derive_vram(const Hardware& hardware, const PlanRequest& request, Budgets& budgets) {
  budgets.vram.flag = "a larger --max-vram";
  budgets.vram.is_given = request.max_vram_bytes.has_value();
  if (hardware.gpus.empty()) {
    if (request.gpu_index > 0) {
      return std::unexpected(no_such_gpu(hardware, request.gpu_index));
    }
    budgets.vram.bytes = request.max_vram_bytes.value_or(0);
    if (budgets.vram.bytes > 0) {
      budgets.warnings.push_back(fmt::format(
          "no GPU here ({}): planned for one with {} of VRAM for weights, as --max-vram says",
          hardware.gpu_note.empty() ? "none found" : hardware.gpu_note,
          format_bytes(budgets.vram.bytes)));
    }
    return {};
  }
  if (request.gpu_index >= hardware.gpus.size()) {
    return std::unexpected(no_such_gpu(hardware, request.gpu_index));
  }
  const GpuInfo& gpu = hardware.gpus[request.gpu_index];
  budgets.gpu_name = gpu.name;
  budgets.vram_total_bytes = gpu.total_bytes;
  const std::uint64_t reserve_bytes = vram_headroom_bytes(request, gpu.total_bytes);
  const std::uint64_t most_bytes = left_of(gpu.total_bytes, reserve_bytes);
  if (!request.max_vram_bytes) {
    budgets.vram.bytes = round_budget_down(most_bytes);
    if (budgets.vram.bytes == 0) {
      budgets.warnings.push_back(fmt::format(
          "{} has {} of VRAM and {} are kept free: planned without it; a smaller --headroom-vram "
          "helps",
          gpu.name, format_bytes(gpu.total_bytes), format_bytes(reserve_bytes)));
    } else if (!request.activation_vram_bytes) {
      budgets.warnings.push_back(
          fmt::format("{} of VRAM are kept free for activations, which is a guess: "
                      "--activation-vram says how much they take",
                      format_bytes(reserve_bytes)));
    }
    return {};
  }
  budgets.vram.bytes = std::min(*request.max_vram_bytes, gpu.total_bytes);
  if (*request.max_vram_bytes > most_bytes) {
    budgets.warnings.push_back(fmt::format(
        "--max-vram {} leaves {} of {} for activations, less than the {} that are usually kept "
        "free",
        format_bytes(*request.max_vram_bytes),
        format_bytes(left_of(gpu.total_bytes, *request.max_vram_bytes)),
        format_bytes(gpu.total_bytes), format_bytes(reserve_bytes)));
  }
  return {};
}

}  // namespace

std::uint64_t round_budget_down(std::uint64_t bytes) {
  const std::uint64_t step_bytes = bytes >= kBudgetStepBytes ? kBudgetStepBytes : kMiB;
  return bytes - bytes % step_bytes;
}

Result<Budgets> derive_budgets(const Hardware& hardware, const PlanRequest& request) {
  Budgets budgets;
  TP_RETURN_IF_ERROR(derive_ram(hardware, request, budgets));
  TP_RETURN_IF_ERROR(derive_vram(hardware, request, budgets));
  if (request.max_pinned_bytes && budgets.vram.bytes > 0 &&
      *request.max_pinned_bytes < budgets.ram.bytes) {
    budgets.ram = {
        .bytes = *request.max_pinned_bytes, .is_given = true, .flag = "a larger --max-pinned"};
  }
  return budgets;
}

}  // namespace trash_panda::plan
