#include "greedy_placement.h"

#include <algorithm>

#include "trash_panda/base/units.h"

namespace trash_panda::plan {
namespace {

// The earlier library's rules of thumb.
constexpr std::uint64_t kBufferPercent = 130;  ///< Of the largest expanded block.
constexpr std::uint64_t kGreedyLookahead = 2;
constexpr std::uint64_t kStreamedBuffers = 2;
constexpr std::uint64_t kGreedyReservePercent = 8;

std::uint64_t subtract_down_to_zero(std::uint64_t from, std::uint64_t amount) {
  return from > amount ? from - amount : 0;
}

std::uint64_t greedy_vram_budget(const Hardware& hardware, const PlanRequest& request) {
  const bool has_gpu = request.gpu_index < hardware.gpus.size();
  const GpuInfo gpu = has_gpu ? hardware.gpus[request.gpu_index] : GpuInfo{};
  const std::uint64_t headroom_bytes =
      request.activation_vram_bytes
          ? *request.activation_vram_bytes + std::max(gpu.total_bytes / 100 * 5, kGiB / 2)
          : request.headroom_vram_bytes;
  return subtract_down_to_zero(request.max_vram_bytes.value_or(gpu.free_bytes), headroom_bytes);
}

/// The number of blocks from the first on that stay in VRAM.
std::size_t greedy_resident_count(const ModelSummary& model, std::uint64_t budget_bytes) {
  std::uint64_t stored_bytes = 0;
  std::uint64_t stored_bytes_max = 0;
  std::uint64_t expanded_bytes_max = 0;
  bool expands = false;
  for (const PlannedBlock& block : model.blocks) {
    stored_bytes += block.stored_bytes;
    stored_bytes_max = std::max(stored_bytes_max, block.stored_bytes);
    expanded_bytes_max = std::max(expanded_bytes_max, block.expanded_bytes);
    expands = expands || block.expanded_bytes != block.stored_bytes;
  }
  const std::uint64_t buffer_bytes =
      expanded_bytes_max / 100 * kBufferPercent + expanded_bytes_max % 100 * kBufferPercent / 100;
  if (model.base_expanded_bytes + stored_bytes + (expands ? buffer_bytes : 0) <= budget_bytes) {
    return model.blocks.size();
  }
  std::uint64_t left_bytes = subtract_down_to_zero(
      budget_bytes, model.base_expanded_bytes + buffer_bytes + kGreedyLookahead * stored_bytes_max);
  std::size_t count = 0;
  while (count < model.blocks.size() && model.blocks[count].stored_bytes <= left_bytes) {
    left_bytes -= model.blocks[count].stored_bytes;
    ++count;
  }
  return count;
}

std::uint64_t greedy_ram_budget(const Hardware& hardware, const PlanRequest& request,
                                std::uint64_t streamed_bytes_max, bool has_gpu) {
  std::uint64_t available_bytes = hardware.ram_available_bytes;
  if (hardware.cgroup_limit_bytes) {
    available_bytes = std::min(available_bytes, subtract_down_to_zero(*hardware.cgroup_limit_bytes,
                                                                      hardware.cgroup_used_bytes));
  }
  const std::uint64_t reserve_bytes = request.min_free_ram_bytes.value_or(
      std::clamp(hardware.ram_total_bytes / 100 * kGreedyReservePercent, kGiB, 4 * kGiB));
  return subtract_down_to_zero(
      request.max_ram_bytes.value_or(available_bytes),
      reserve_bytes + (has_gpu ? kStreamedBuffers * streamed_bytes_max : 0));
}

/// Puts the fewest of the blocks from `begin` on to disk that let the others fit.
void choose_greedy_disk(const ModelSummary& model, std::size_t begin, std::uint64_t budget_bytes,
                        std::vector<Tier>& tiers) {
  const std::size_t count = tiers.size() - begin;
  std::uint64_t all_bytes = 0;
  for (std::size_t index = begin; index < tiers.size(); ++index) {
    all_bytes += model.blocks[index].stored_bytes;
  }
  for (std::size_t disk_count = 0; disk_count <= count; ++disk_count) {
    const std::vector<std::size_t> chosen = spread_evenly(disk_count, count);
    std::uint64_t ram_bytes = all_bytes;
    for (const std::size_t at : chosen) {
      ram_bytes -= model.blocks[begin + at].stored_bytes;
    }
    if (ram_bytes <= budget_bytes || disk_count == count) {
      for (const std::size_t at : chosen) {
        tiers[begin + at] = Tier::kDisk;
      }
      return;
    }
  }
}

}  // namespace

std::vector<Tier> place_greedily(const ModelSummary& model, const Hardware& hardware,
                                 const PlanRequest& request) {
  std::vector<Tier> tiers(model.blocks.size(), Tier::kRam);
  const bool has_gpu = !hardware.gpus.empty() || request.max_vram_bytes;
  std::size_t resident_count =
      has_gpu ? greedy_resident_count(model, greedy_vram_budget(hardware, request)) : 0;
  if (has_gpu && request.resident_blocks) {
    resident_count = std::min<std::size_t>(*request.resident_blocks, tiers.size());
  }
  std::fill_n(tiers.begin(), resident_count, Tier::kGpu);
  std::uint64_t streamed_bytes_max = 0;
  for (std::size_t index = resident_count; index < tiers.size(); ++index) {
    streamed_bytes_max = std::max(streamed_bytes_max, model.blocks[index].stored_bytes);
  }
  if (request.allow_disk) {
    choose_greedy_disk(model, resident_count,
                       greedy_ram_budget(hardware, request, streamed_bytes_max, has_gpu), tiers);
  }
  return tiers;
}

}  // namespace trash_panda::plan
