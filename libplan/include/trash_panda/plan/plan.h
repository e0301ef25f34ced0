#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/tier.h"
#include "trash_panda/plan/plan_request.h"
#include "trash_panda/plan/storage_form.h"

namespace trash_panda::plan {

/// Where one block waits.
struct PlannedBlock {
  std::string name;  ///< "model.layers.0".
  Tier tier = Tier::kRam;
  std::uint64_t stored_bytes = 0;    ///< Its tensors in the checkpoint: tiers sum to the file.
  std::uint64_t extent_bytes = 0;    ///< Its extent in the pack: canonical scales, padded to pages.
  std::uint64_t expanded_bytes = 0;  ///< Its weights in the compute dtype.
  std::uint64_t expand_bytes = 0;    ///< Of `stored_bytes`, what each use has to expand.
  StorageForm form = StorageForm::kRaw;
  std::uint64_t coded_bytes = 0;  ///< Its extent in `form`, an estimate; 0: raw, not coded.
  double compute_s = 0;           ///< Each use, without expansion; 0: not known.

  /// Bytes of its extent as it waits.
  [[nodiscard]] std::uint64_t waiting_bytes() const {
    return form == StorageForm::kRaw ? extent_bytes : coded_bytes;
  }
  /// Bytes that are read or copied for it; padding is left out.
  [[nodiscard]] std::uint64_t moved_bytes() const {
    return form == StorageForm::kRaw ? stored_bytes : coded_bytes;
  }

  bool operator==(const PlannedBlock&) const = default;
};

/// What a prediction counts with; nothing: not measured.
struct Rates {
  std::optional<std::uint64_t> disk_bytes_per_s;
  /// In which reads the disk's rate was measured, and is reached: bytes of one, and how many are
  /// in flight.
  std::optional<std::uint64_t> disk_request_bytes;
  std::optional<std::uint64_t> disk_queue_depth;
  std::optional<std::uint64_t> decode_bytes_per_s;  ///< Of zstd, in raw bytes.
  std::optional<std::uint64_t> expand_bytes_per_s;  ///< In raw bytes.
  std::optional<std::uint64_t> link_bytes_per_s;

  /// A file may say that a rate is 0, which none is: it was not measured.
  void forget_zeros() {
    for (std::optional<std::uint64_t>* rate :
         {&disk_bytes_per_s, &disk_request_bytes, &disk_queue_depth, &decode_bytes_per_s,
          &expand_bytes_per_s, &link_bytes_per_s}) {
      if (*rate == 0U) {
        rate->reset();
      }
    }
  }

  bool operator==(const Rates&) const = default;
};

/// Plan::compute_source of times that were measured block by block.
inline constexpr std::string_view kComputeProfiled = "profile";

/// Time of a pass, as the simulation has it.
struct Prediction {
  double pass_s = 0;        ///< In the steady state.
  double bound_s = 0;       ///< No schedule of this placement is faster.
  std::string limiting;     ///< The channel that the bound comes from. @see channel_name()
  double stall_s = 0;       ///< Of `pass_s`, time without computation.
  double first_pass_s = 0;  ///< From a cold start, with all that is read once.

  bool operator==(const Prediction&) const = default;
};

/// VRAM beside weights and activations: the driver's context, the desktop, fragmentation.
[[nodiscard]] std::uint64_t vram_reserve_bytes(std::uint64_t vram_total_bytes);

/// VRAM that a request leaves to activations and to others.
[[nodiscard]] std::uint64_t vram_headroom_bytes(const PlanRequest& request,
                                                std::uint64_t vram_total_bytes);

/// A placement of one model on one machine. Plain data; plan_toml.h reads and writes it.
///
/// With VRAM to plan for (`vram_budget_bytes` > 0) base and compute slots lie in VRAM, else in RAM.
struct Plan {
  // [model]
  std::string model_path;
  std::string model_fingerprint;  ///< format::Checkpoint::fingerprint().
  std::uint64_t model_bytes = 0;  ///< All tensors, blocks and base, as stored.
  std::uint64_t tensor_count = 0;
  // [hardware]: what the budgets were derived from.
  std::uint64_t ram_total_bytes = 0;
  std::uint64_t ram_limit_bytes = 0;  ///< The smaller of RAM and the cgroup's limit.
  std::string ram_limit_source;       ///< "ram" or "cgroup".
  std::string gpu_name;               ///< Empty without a GPU.
  std::uint64_t vram_total_bytes = 0;
  std::string measured_at;  ///< When the rates were measured; empty: they were not.
  // [rates]
  Rates rates;
  std::string compute_source;  ///< Of the blocks' compute_s: "profile", "given" or "estimate".
  // [budget]
  std::uint64_t ram_budget_bytes = 0;  ///< For RAM blocks, host slots and, without VRAM, base.
  std::uint64_t vram_budget_bytes = 0;
  std::uint64_t base_bytes = 0;  ///< Tensors outside blocks, in the compute dtype.
  std::uint64_t slot_bytes = 0;  ///< Host memory that disk blocks stream through.
  /// Memory of the compute device that a block in use takes beside its tier: where streamed blocks
  /// arrive (VRAM) and where stored weights are expanded: in RAM twice, as one block is made while
  /// another is used. 0 when blocks are used in place.
  std::uint64_t compute_slot_bytes = 0;
  std::uint64_t kv_cache_bytes = 0;  ///< On the compute device, beside the weights.
  // [request]
  /// What it was planned from, beside the machine: asking again gives the same plan. Without
  /// `forms`, which are the program's and not the user's. @see repeated_request()
  PlanRequest request;
  // [settings]
  std::string compute_dtype = "bf16";  ///< "bf16", "fp16", "fp32" or "keep".
  std::uint64_t lookahead_bytes = 0;   ///< Read ahead of need.
  /// Slots that a pass was simulated with. 0: none.
  std::uint64_t host_slot_count = 0;
  std::uint64_t device_slot_count = 0;
  /// Tiers of the blocks as planned: what differs from them in a file was changed by hand. Empty:
  /// not known.
  std::vector<Tier> placed;
  // [demotion]: indexes of blocks, first to go first, for when memory is short at load.
  std::vector<std::uint64_t> demote_gpu;  ///< From VRAM to RAM, or to disk where RAM is full.
  std::vector<std::uint64_t> demote_ram;  ///< From RAM to disk.
  // [predicted]
  std::optional<Prediction> predicted;
  // [[block]], in execution order
  std::vector<PlannedBlock> blocks;

  std::vector<std::string> warnings;  ///< Not stored: said once, when the plan is made.

  /// VRAM that is left to activations and to others; 0 without VRAM.
  [[nodiscard]] std::uint64_t vram_headroom_bytes() const;
  /// Bytes in the checkpoint of the blocks of a tier; for kBase, of all that is in no block.
  [[nodiscard]] std::uint64_t stored_bytes(Tier tier) const;
  /// Bytes that are read or copied for the blocks of a tier: coded ones as they wait.
  [[nodiscard]] std::uint64_t moved_bytes(Tier tier) const;
  /// Bytes of the blocks of a tier as they wait; for kBase `base_bytes`.
  [[nodiscard]] std::uint64_t extent_bytes(Tier tier) const;
  [[nodiscard]] std::size_t block_count(Tier tier) const;

  /// The numbered prefixes of its blocks, with a final dot: what it was made with, --group
  /// included, is found again by them, whatever a search would say.
  [[nodiscard]] std::vector<std::string> groups() const;

  /// Whether VRAM was planned for.
  [[nodiscard]] bool uses_vram() const { return vram_budget_bytes > 0; }
  /// RAM that the plan takes at once, of `ram_budget_bytes`.
  [[nodiscard]] std::uint64_t ram_used_bytes() const;
  /// VRAM that the plan takes at once, of `vram_budget_bytes`.
  [[nodiscard]] std::uint64_t vram_used_bytes() const;
  /// Whether both stay within their budgets. A machine that is too small for a model still gets a
  /// plan, with a warning; a budget or an assignment of the user that can't be met is an error.
  [[nodiscard]] bool fits() const;

  bool operator==(const Plan&) const = default;
};

}  // namespace trash_panda::plan
