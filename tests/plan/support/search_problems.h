#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "placement_search.h"

namespace trash_panda::plan {

/// Which sizes the blocks of a random problem have.
enum class BlockSizes {
  kEqual,
  kTwoKinds,    ///< Those of the first blocks, then those of the others.
  kThreeKinds,  ///< In any order.
  kAllDifferent
};

/// A machine and a model, before they are made into a problem.
struct Instance {
  std::vector<std::uint64_t> block_bytes;
  std::vector<double> compute_s;
  bool has_gpu = true;
  double disk_bytes_per_s = 1;
  double link_bytes_per_s = 1;
  double decode_bytes_per_s = 0;  ///< Of blocks that were read; 0: they are not decoded.
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
      cost.decode_s = decode_bytes_per_s > 0 ? static_cast<double>(bytes) / decode_bytes_per_s : 0;
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
      } else if (sizes == BlockSizes::kThreeKinds) {
        bytes = std::array{340e6, 141e6, 57e6}.at(pick(3));
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
    if (pick(4) == 0) {
      instance.decode_bytes_per_s = bytes_per_s * between(0.3, 2);
    }
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
  std::set<std::pair<std::size_t, std::size_t>> tried;
  for (const std::size_t host : problem.host_slot_counts) {
    for (const std::size_t device : problem.device_slot_counts) {
      const std::size_t host_count = std::min(host, disk_count);
      const std::size_t device_count = std::min(device, streamed_count);
      if (!tried.emplace(host_count, device_count).second) {
        continue;
      }
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

/// Goes through all placements for the shortest pass, leaving out only those of which the memory or
/// a channel's sum tells that they can't be it.
class ExhaustiveSearch {
 public:
  explicit ExhaustiveSearch(const SearchProblem& problem)
      : problem_(problem), tiers_(problem.blocks.size(), Tier::kGpu) {
    for (const SearchBlock& block : problem.blocks) {
      compute_s_ += block.choices[0].cost.compute_s;
    }
  }

  /// Infinite where nothing fits.
  [[nodiscard]] double shortest_pass_s() {
    visit(0, {});
    return best_s_;
  }

 private:
  /// What the blocks placed so far take.
  struct Taken {
    double read_s = 0;
    double decode_s = 0;
    double copy_s = 0;
    std::uint64_t vram_bytes = 0;
    std::uint64_t ram_bytes = 0;
  };

  void visit(std::size_t index, const Taken& taken) {
    const double least_s = std::max({taken.read_s, taken.decode_s, taken.copy_s, compute_s_});
    if (taken.vram_bytes > problem_.vram_bytes || taken.ram_bytes > problem_.ram_bytes ||
        least_s >= best_s_) {
      return;
    }
    if (index == tiers_.size()) {
      best_s_ = std::min(best_s_, fitting_pass_s(problem_, tiers_));
      return;
    }
    for (const Tier tier : kBlockTiers) {
      const TierChoice& choice = problem_.blocks[index].choices[tier_index(tier)];
      if (!choice.is_allowed) {
        continue;
      }
      tiers_[index] = tier;
      Taken with = taken;
      with.read_s += choice.cost.read_s;
      with.decode_s += choice.cost.decode_s;
      with.copy_s += choice.cost.copy_s;
      (tier == Tier::kGpu ? with.vram_bytes : with.ram_bytes) += choice.memory_bytes;
      visit(index + 1, with);
    }
  }

  const SearchProblem& problem_;
  std::vector<Tier> tiers_;
  double compute_s_ = 0;  ///< Of all blocks: the same in every tier of an Instance.
  double best_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace trash_panda::plan
