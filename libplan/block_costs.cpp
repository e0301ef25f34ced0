#include "block_costs.h"

#include <cmath>

#include <fmt/format.h>

namespace trash_panda::plan {
namespace {

bool is_time(double seconds) {
  return std::isfinite(seconds) && seconds >= 0;
}

void share_out(double total_s, std::vector<PlannedBlock>& blocks) {
  double expanded_bytes = 0;
  for (const PlannedBlock& block : blocks) {
    expanded_bytes += static_cast<double>(block.expanded_bytes);
  }
  for (PlannedBlock& block : blocks) {
    block.compute_s = expanded_bytes > 0
                          ? total_s * static_cast<double>(block.expanded_bytes) / expanded_bytes
                          : 0;
  }
}

}  // namespace

void set_disk_rate(const DiskInfo& disk, Rates& rates) {
  rates.disk_bytes_per_s = disk.read_bytes_per_s;
  if (disk.read_bytes_per_s && disk.read_request_bytes > 0 && disk.read_queue_depth > 0) {
    rates.disk_request_bytes = disk.read_request_bytes;
    rates.disk_queue_depth = disk.read_queue_depth;
  }
}

Result<CostedBlocks> cost_blocks(const ModelSummary& model, const Hardware& hardware,
                                 const PlanRequest& request, const Budgets& budgets) {
  CostedBlocks costed;
  costed.blocks = model.blocks;
  const bool has_gpu = budgets.vram.bytes > 0 && request.gpu_index < hardware.gpus.size();
  if (!hardware.disks.empty()) {
    set_disk_rate(hardware.disks.front(), costed.rates);
  }
  costed.rates.decode_bytes_per_s = hardware.cpu.expand.zstd_bytes_per_s;
  const ExpandRates& expand =
      has_gpu ? hardware.gpus[request.gpu_index].expand : hardware.cpu.expand;
  costed.rates.expand_bytes_per_s = expand.fp8_bytes_per_s;
  costed.exponent_bytes_per_s = expand.exponent_bytes_per_s;
  std::optional<std::uint64_t> memory_bytes_per_s = hardware.ram_copy_bytes_per_s;
  if (has_gpu) {
    const GpuInfo& gpu = hardware.gpus[request.gpu_index];
    costed.rates.link_bytes_per_s = gpu.h2d_pinned_bytes_per_s;
    memory_bytes_per_s = gpu.memory_bytes_per_s;
  }
  costed.rates.forget_zeros();

  if (request.profile_s) {
    if (request.profile_s->size() != costed.blocks.size()) {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("the profile is of {} blocks, the model has {}",
                                               request.profile_s->size(), costed.blocks.size())));
    }
    costed.compute_source = kComputeProfiled;
    for (std::size_t index = 0; index < costed.blocks.size(); ++index) {
      costed.blocks[index].compute_s = (*request.profile_s)[index];
    }
  } else if (request.compute_s) {
    costed.compute_source = "given";
    share_out(*request.compute_s, costed.blocks);
  } else if (memory_bytes_per_s && *memory_bytes_per_s > 0) {
    costed.compute_source = "estimate";
    for (PlannedBlock& block : costed.blocks) {
      block.compute_s =
          static_cast<double>(block.expanded_bytes) / static_cast<double>(*memory_bytes_per_s);
    }
  }
  for (const PlannedBlock& block : costed.blocks) {
    if (!is_time(block.compute_s)) {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("{} s are no time to compute in", block.compute_s)));
    }
  }
  return costed;
}

}  // namespace trash_panda::plan
