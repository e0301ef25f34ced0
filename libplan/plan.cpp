#include "trash_panda/plan/plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trash_panda/base/units.h"

#include "left_of.h"

namespace trash_panda::plan {
namespace {

constexpr std::array<std::pair<std::string_view, StorageForm>, 3> kStorageForms{{
    {"raw", StorageForm::kRaw},
    {"exponent", StorageForm::kExponent},
    {"zstd", StorageForm::kZstd},
}};

constexpr std::uint64_t kVramReservePercent = 5;
constexpr std::uint64_t kVramReserveBytesMin = 512 * kMiB;

}  // namespace

std::uint64_t vram_reserve_bytes(std::uint64_t vram_total_bytes) {
  return std::max(vram_total_bytes / 100 * kVramReservePercent, kVramReserveBytesMin);
}

std::uint64_t vram_headroom_bytes(const PlanRequest& request, std::uint64_t vram_total_bytes) {
  return request.activation_vram_bytes
             ? std::min(*request.activation_vram_bytes, vram_total_bytes) +
                   vram_reserve_bytes(vram_total_bytes)
             : request.headroom_vram_bytes;
}

std::string_view storage_form_name(StorageForm form) {
  return std::ranges::find(kStorageForms, form, [](const auto& entry) { return entry.second; })
      ->first;
}

std::optional<StorageForm> parse_storage_form(std::string_view name) {
  const auto* const found =
      std::ranges::find(kStorageForms, name, [](const auto& entry) { return entry.first; });
  return found == kStorageForms.end() ? std::nullopt : std::optional(found->second);
}

std::string_view placement_name(PlacementMethod method) {
  return method == PlacementMethod::kGreedy ? "greedy" : "cost";
}

std::optional<PlacementMethod> parse_placement(std::string_view name) {
  for (const PlacementMethod method : {PlacementMethod::kCost, PlacementMethod::kGreedy}) {
    if (name == placement_name(method)) {
      return method;
    }
  }
  return std::nullopt;
}

std::uint64_t Plan::vram_headroom_bytes() const {
  // A --max-vram close to all of it says that less is needed.
  return uses_vram() ? std::min(plan::vram_headroom_bytes(request, vram_total_bytes),
                                left_of(vram_total_bytes, vram_budget_bytes))
                     : 0;
}

std::uint64_t Plan::stored_bytes(Tier tier) const {
  std::uint64_t of_tier_bytes = 0;
  std::uint64_t of_blocks_bytes = 0;
  for (const PlannedBlock& block : blocks) {
    of_tier_bytes += block.tier == tier ? block.stored_bytes : 0;
    of_blocks_bytes += block.stored_bytes;
  }
  if (tier == Tier::kBase) {
    return of_blocks_bytes < model_bytes ? model_bytes - of_blocks_bytes : 0;
  }
  return of_tier_bytes;
}

std::uint64_t Plan::moved_bytes(Tier tier) const {
  std::uint64_t total_bytes = 0;
  for (const PlannedBlock& block : blocks) {
    total_bytes += block.tier == tier ? block.moved_bytes() : 0;
  }
  return total_bytes;
}

std::uint64_t Plan::extent_bytes(Tier tier) const {
  if (tier == Tier::kBase) {
    return base_bytes;
  }
  std::uint64_t total_bytes = 0;
  for (const PlannedBlock& block : blocks) {
    total_bytes += block.tier == tier ? block.waiting_bytes() : 0;
  }
  return total_bytes;
}

std::size_t Plan::block_count(Tier tier) const {
  std::size_t count = 0;
  for (const PlannedBlock& block : blocks) {
    count += block.tier == tier ? 1 : 0;
  }
  return count;
}

std::uint64_t Plan::ram_used_bytes() const {
  const std::uint64_t on_compute_device_bytes =
      uses_vram() ? 0 : base_bytes + compute_slot_bytes + kv_cache_bytes;
  // Without VRAM, blocks of the GPU tier lie in RAM as well.
  const std::uint64_t gpu_tier_bytes = uses_vram() ? 0 : extent_bytes(Tier::kGpu);
  return extent_bytes(Tier::kRam) + gpu_tier_bytes + slot_bytes + on_compute_device_bytes;
}

std::uint64_t Plan::vram_used_bytes() const {
  return uses_vram() ? base_bytes + compute_slot_bytes + kv_cache_bytes + extent_bytes(Tier::kGpu)
                     : 0;
}

bool Plan::fits() const {
  return ram_used_bytes() <= ram_budget_bytes && vram_used_bytes() <= vram_budget_bytes;
}

std::vector<std::string> Plan::groups() const {
  std::vector<std::string> groups;
  for (const PlannedBlock& block : blocks) {
    const std::string prefix = block.name.substr(0, block.name.rfind('.') + 1);
    if (std::ranges::find(groups, prefix) == groups.end()) {
      groups.push_back(prefix);
    }
  }
  return groups;
}

}  // namespace trash_panda::plan
