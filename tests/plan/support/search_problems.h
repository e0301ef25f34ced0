#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "placement_search.h"

namespace trash_panda::plan {

/// Which sizes the blocks of a random problem have.
enum class BlockSizes { kEqual, kTwoKinds, kAllDifferent };

/// A machine and a model, before they are made into a problem.
struct Instance {
  std::vector<std::uint64_t> block_bytes;
  std::vector<double> compute_s;
  bool has_gpu = true;
  double disk_bytes_per_s = 1;
  double link_bytes_per_s = 1;
  std::uint64_t vram_bytes = 0;
  std::uint64_t ram_bytes = 0;

  [[nodiscard]] SearchProblem problem() const {
    SearchProblem problem;
    problem.has_link = has_gpu;
    problem.vram_bytes = vram_bytes;
    problem.ram_bytes = ram_bytes;
    for (std::size_t index = 0; index < block_bytes.size(); ++index) {
      const std::uint64_t bytes = block_bytes[index];
      BlockCost cost;
      cost.compute_s = compute_s[index];
      cost.chunk_count = std::ceil(static_cast<double>(bytes) / 8e6);
      SearchBlock& block = problem.blocks.emplace_back();
      block.choices[0] = {.is_allowed = has_gpu,
                          .cost = cost,
                          .memory_bytes = bytes,
                          .host_slot_bytes = 0,
                          .device_slot_bytes = 0};
      cost.copy_s = has_gpu ? static_cast<double>(bytes) / link_bytes_per_s : 0;
      block.choices[1] = {.is_allowed = true,
                          .cost = cost,
                          .memory_bytes = bytes,
                          .host_slot_bytes = 0,
                          .device_slot_bytes = has_gpu ? bytes : 0};
      cost.read_s = static_cast<double>(bytes) / disk_bytes_per_s;
      block.choices[2] = {.is_allowed = true,
                          .cost = cost,
                          .memory_bytes = 0,
                          .host_slot_bytes = bytes,
                          .device_slot_bytes = has_gpu ? bytes : 0};
    }
    return problem;
  }
};

class InstanceMaker {
 public:
  explicit InstanceMaker(std::uint64_t seed) : engine_(seed) {}

  [[nodiscard]] double between(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11U) * 0x1p-53;
  }
  [[nodiscard]] std::uint64_t pick(std::uint64_t count) { return engine_() % count; }

  /// Rates from far below to above what the computation could use, memory from too little to all.
  [[nodiscard]] Instance make(std::size_t block_count, BlockSizes sizes) {
    Instance instance;
    instance.has_gpu = pick(4) != 0;
    double total_bytes = 0;
    const double uneven_from = between(0, static_cast<double>(block_count));
    for (std::size_t index = 0; index < block_count; ++index) {
      double bytes = 300e6;
      double compute_s = 1;
      if (sizes == BlockSizes::kTwoKinds) {
        bytes = static_cast<double>(index) < uneven_from ? 340e6 : 141e6;
        compute_s = bytes / 300e6;
      } else if (sizes == BlockSizes::kAllDifferent) {
        bytes = between(50e6, 500e6);
        compute_s = between(0.3, 1.7);
      }
      instance.block_bytes.push_back(static_cast<std::uint64_t>(bytes));
      instance.compute_s.push_back(compute_s);
      total_bytes += bytes;
    }
    const double bytes_per_s = total_bytes / static_cast<double>(block_count);
    instance.disk_bytes_per_s = bytes_per_s * between(0.05, 1.5);
    instance.link_bytes_per_s = bytes_per_s * between(0.3, 4);
    instance.vram_bytes = static_cast<std::uint64_t>(total_bytes * between(0.15, 1.1));
    instance.ram_bytes = static_cast<std::uint64_t>(total_bytes * between(0.2, 1.1));
    return instance;
  }

 private:
  std::mt19937_64 engine_;
};

/// The pass of a placement with the best slots that there is memory for; infinite where it does
/// not fit. Written from the rules, without the search's code.
inline double fitting_pass_s(const SearchProblem& problem, const std::vector<Tier>& tiers) {
  PassModel model;
  model.has_link = problem.has_link;
  std::uint64_t vram_bytes = 0;
  std::uint64_t ram_bytes = 0;
  std::uint64_t host_slot_bytes = 0;
  std::uint64_t device_slot_bytes = 0;
  std::size_t disk_count = 0;
  std::size_t streamed_count = 0;
  for (std::size_t index = 0; index < tiers.size(); ++index) {
    const TierChoice& choice = problem.blocks[index].choices[tier_index(tiers[index])];
    if (!choice.is_allowed) {
      return std::numeric_limits<double>::infinity();
    }
    model.blocks.push_back(choice.cost);
    (tiers[index] == Tier::kGpu ? vram_bytes : ram_bytes) += choice.memory_bytes;
    host_slot_bytes = std::max(host_slot_bytes, choice.host_slot_bytes);
    device_slot_bytes = std::max(device_slot_bytes, choice.device_slot_bytes);
    disk_count += tiers[index] == Tier::kDisk ? 1U : 0U;
    streamed_count += choice.device_slot_bytes > 0 ? 1U : 0U;
  }
  double best_s = std::numeric_limits<double>::infinity();
  for (const std::size_t host : problem.host_slot_counts) {
    for (const std::size_t device : problem.device_slot_counts) {
      const std::size_t host_count = std::min(host, disk_count);
      const std::size_t device_count = std::min(device, streamed_count);
      if (ram_bytes + host_count * host_slot_bytes <= problem.ram_bytes &&
          vram_bytes + device_count * device_slot_bytes <= problem.vram_bytes) {
        model.host_slot_count = std::max<std::size_t>(host_count, 1);
        model.device_slot_count = std::max<std::size_t>(device_count, 1);
        best_s = std::min(best_s, simulate_pass_s(model));
      }
    }
  }
  return best_s;
}

/// The shortest pass of all placements, by trying them all.
inline double exhaustive_pass_s(const SearchProblem& problem) {
  std::vector<Tier> tiers(problem.blocks.size(), Tier::kGpu);
  double best_s = std::numeric_limits<double>::infinity();
  while (true) {
    best_s = std::min(best_s, fitting_pass_s(problem, tiers));
    std::size_t at = 0;
    while (at < tiers.size() && tiers[at] == Tier::kDisk) {
      tiers[at++] = Tier::kGpu;
    }
    if (at == tiers.size()) {
      return best_s;
    }
    tiers[at] = tiers[at] == Tier::kGpu ? Tier::kRam : Tier::kDisk;
  }
}

}  // namespace trash_panda::plan
