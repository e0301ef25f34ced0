#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trash_panda/format/tier.h"
#include "trash_panda/plan/storage_form.h"

namespace trash_panda::plan {

using format::Tier;

enum class PlacementMethod {
  kCost,    ///< The shortest simulated pass, where enough was measured to simulate one.
  kGreedy,  ///< As the earlier Python library placed blocks.
};

/// "cost" or "greedy".
[[nodiscard]] std::string_view placement_name(PlacementMethod method);
[[nodiscard]] std::optional<PlacementMethod> parse_placement(std::string_view name);

/// VRAM that is kept free for activations and everything else unless the user says more.
inline constexpr std::uint64_t kHeadroomVramBytes = 1'500'000'000;

/// What a KV cache is to hold. @see kv_cache.h
struct ContextRequest {
  std::uint64_t context_tokens = 0;
  std::uint64_t batch_size = 1;
  std::string kv_dtype = "bf16";  ///< "bf16", "fp16", "fp32" or "fp8".

  bool operator==(const ContextRequest&) const = default;
};

/// What the user asked for; an empty optional means automatic.
struct PlanRequest {
  std::size_t gpu_index = 0;  ///< Into Hardware::gpus.
  /// Exact when given. Without a GPU it plans for one elsewhere, with a warning.
  std::optional<std::uint64_t> max_vram_bytes;
  std::uint64_t headroom_vram_bytes = kHeadroomVramBytes;  ///< Kept free, activations included.
  /// When given, activations plus the larger of 5 % and 0.5 GiB are kept free instead.
  std::optional<std::uint64_t> activation_vram_bytes;
  std::optional<std::uint64_t> max_ram_bytes;       ///< Exact when given, within the limit.
  std::optional<std::uint64_t> min_free_ram_bytes;  ///< Automatic: 8 % of RAM within 1–4 GiB.
  /// With VRAM, what waits in RAM is pinned, so that it can be copied while the GPU computes: RAM
  /// blocks and slots together stay within this. Automatic: no limit but that of RAM.
  std::optional<std::uint64_t> max_pinned_bytes;
  bool allow_disk = true;
  std::optional<std::uint64_t> resident_blocks;  ///< Exactly so many blocks in VRAM.
  /// `TIER=SEL` as typed, in order; later ones win. SEL: `0-7,12,-1` or a glob over block names.
  std::vector<std::pair<Tier, std::string>> assignments;
  std::optional<std::uint64_t> lookahead_blocks;  ///< Automatic: 2, or 1 where RAM is short.
  std::string compute_dtype = "bf16";
  PlacementMethod placement = PlacementMethod::kCost;
  std::uint64_t kv_cache_bytes = 0;       ///< Kept free on the compute device beside the weights.
  std::optional<ContextRequest> context;  ///< What `kv_cache_bytes` are for.
  /// Time of all blocks' computation in a pass, without expansion; shared out by their weights.
  std::optional<double> compute_s;
  /// The same block by block, measured; in execution order.
  std::optional<std::vector<double>> profile_s;
  /// Forms beside raw that a pack of the plan can hold: a plan does not promise what `repack` can't
  /// keep.
  std::vector<StorageForm> forms;
  /// Prefixes of the blocks where the user named them. For the record: make_plan() gets blocks.
  std::vector<std::string> groups;

  bool operator==(const PlanRequest&) const = default;
};

}  // namespace trash_panda::plan
