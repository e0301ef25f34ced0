#include "trash_panda/plan/stages.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/prediction.h"

#include "budgets.h"
#include "left_of.h"

namespace trash_panda::plan {
namespace {

/// Memory, of a stage or free beside one.
struct StageMemory {
  std::uint64_t ram_bytes = 0;
  std::uint64_t vram_bytes = 0;
};

/// Seconds that a stage leaves the channels of transfers alone, while it runs.
struct IdleTime {
  double disk_s = std::numeric_limits<double>::infinity();
  double link_s = std::numeric_limits<double>::infinity();
};

/// The request with a budget that leaves what is held alone.
Result<PlanRequest> request_beside(const Stage& stage, const StageMemory& held) {
  PlanRequest request = stage.request;
  TP_ASSIGN_OR_RETURN(const Budgets budgets, derive_budgets(stage.hardware, request));
  const auto lack = [](std::string_view what, std::uint64_t held_bytes,
                       std::uint64_t budget_bytes) {
    return std::unexpected(
        Error(ErrorCode::kDoesNotFit,
              fmt::format("earlier stages that stay loaded take {} of {}, all of the budget of {}",
                          format_bytes(held_bytes), what, format_bytes(budget_bytes)))
            .with_hint("stages without keep = true give their memory back")
            .with_shortage({.needed_bytes = held_bytes, .budget_bytes = budget_bytes}));
  };
  if (held.ram_bytes > 0) {
    if (held.ram_bytes >= budgets.ram.bytes) {
      return lack("RAM", held.ram_bytes, budgets.ram.bytes);
    }
    request.max_ram_bytes = budgets.ram.bytes - held.ram_bytes;
  }
  if (held.vram_bytes > 0 && budgets.vram.bytes > 0) {
    if (held.vram_bytes >= budgets.vram.bytes) {
      return lack("VRAM", held.vram_bytes, budgets.vram.bytes);
    }
    request.max_vram_bytes = budgets.vram.bytes - held.vram_bytes;
  }
  return request;
}

/// Whether both models are known to lie on drives of their own.
bool have_drives_apart(const Stage& first, const Stage& second) {
  if (first.hardware.disks.empty() || second.hardware.disks.empty()) {
    return false;
  }
  const std::string& device = first.hardware.disks.front().device;
  const std::string& other = second.hardware.disks.front().device;
  return !device.empty() && !other.empty() && device != other;
}

/// What a stage leaves of the drive and the link. Its first pass reads and copies all of its
/// weights, the others what streams.
IdleTime idle_time(const PlannedStage& stage, bool has_own_drive) {
  const Plan& plan = stage.plan;
  if (!plan.predicted) {
    return {};
  }
  const std::uint64_t base_bytes = plan.stored_bytes(Tier::kBase);
  const ChannelTimes first = channel_times(first_pass_model(plan).blocks);
  const ChannelTimes pass = channel_times(pass_model(plan).blocks);
  const auto idle_s = [&](Channel channel, const std::optional<std::uint64_t>& bytes_per_s) {
    const double first_s = first[channel] + transfer_s(base_bytes, bytes_per_s);
    return std::max(0.0, plan.predicted->first_pass_s - first_s) +
           static_cast<double>(stage.step_count - 1) * (plan.predicted->pass_s - pass[channel]);
  };
  IdleTime idle;
  idle.link_s = idle_s(Channel::kLink, plan.rates.link_bytes_per_s);
  if (!has_own_drive) {
    idle.disk_s = idle_s(Channel::kDisk, plan.rates.disk_bytes_per_s);
  }
  return idle;
}

/// Loads one stage ahead, part by part, while there is memory and time.
class Preloader {
 public:
  Preloader(const Plan& plan, const StageMemory& free, const IdleTime& idle)
      : plan_(plan), free_(free), idle_(idle) {}

  void run() {
    const std::uint64_t stored_bytes = plan_.stored_bytes(Tier::kBase);
    loaded_.base = load({.stored_bytes = stored_bytes,
                         .ram_bytes = plan_.uses_vram() ? stored_bytes : plan_.base_bytes,
                         .vram_bytes = plan_.base_bytes},
                        Tier::kGpu);
    preload_.has_base = loaded_.base.has_value();
    std::uint64_t slots_used = 0;
    for (std::size_t at = 0; preload_.has_base && at < plan_.blocks.size(); ++at) {
      const PlannedBlock& block = plan_.blocks[at];
      Part part = {.stored_bytes = block.moved_bytes(),
                   .ram_bytes = block.waiting_bytes(),
                   .vram_bytes = block.waiting_bytes()};
      if (block.tier == Tier::kDisk) {
        if (slots_used == plan_.host_slot_count) {
          return;  // Where it streams through, there is no more room.
        }
        ++slots_used;
        part.ram_bytes = plan_.slot_bytes / plan_.host_slot_count;
      }
      const std::optional<Tier> place = load(part, block.tier);
      if (!place) {
        return;
      }
      ++preload_.block_count;
      loaded_.blocks.push_back(*place);
    }
  }

  [[nodiscard]] const Preload& preload() const { return preload_; }
  [[nodiscard]] const LoadedAhead& loaded() const { return loaded_; }

 private:
  /// What is loaded as one.
  struct Part {
    std::uint64_t stored_bytes = 0;  ///< Read, and copied.
    std::uint64_t ram_bytes = 0;     ///< Taken where it waits in RAM.
    std::uint64_t vram_bytes = 0;    ///< Taken in VRAM.
  };

  /// Loads a part, of VRAM (`home` kGpu) to there if possible, else into RAM; nothing when neither
  /// is.
  std::optional<Tier> load(const Part& part, Tier home) {
    const double read_s = transfer_s(part.stored_bytes, plan_.rates.disk_bytes_per_s);
    const double copy_s = transfer_s(part.stored_bytes, plan_.rates.link_bytes_per_s);
    if (read_s > idle_.disk_s) {
      return std::nullopt;
    }
    const bool goes_to_vram = home == Tier::kGpu && plan_.uses_vram() &&
                              part.vram_bytes <= free_.vram_bytes && copy_s <= idle_.link_s;
    if (goes_to_vram) {
      free_.vram_bytes -= part.vram_bytes;
      preload_.vram_bytes += part.vram_bytes;
      idle_.link_s -= copy_s;
    } else if (part.ram_bytes <= free_.ram_bytes) {
      free_.ram_bytes -= part.ram_bytes;
      preload_.ram_bytes += part.ram_bytes;
    } else {
      return std::nullopt;
    }
    idle_.disk_s -= read_s;
    preload_.read_bytes += part.stored_bytes;
    return goes_to_vram ? Tier::kGpu : Tier::kRam;
  }

  const Plan& plan_;
  StageMemory free_;
  IdleTime idle_;
  Preload preload_;
  LoadedAhead loaded_;
};

/// Fills what is preloaded of a stage while the one before it runs, and what that saves.
void preload_beside(const PlannedStage& before, bool has_own_drive, PlannedStage& stage) {
  const StageMemory free = {
      .ram_bytes = left_of(before.plan.ram_budget_bytes, before.plan.ram_used_bytes()),
      .vram_bytes = left_of(before.plan.vram_budget_bytes, before.plan.vram_used_bytes())};
  Preloader preloader(stage.plan, free, idle_time(before, has_own_drive));
  preloader.run();
  stage.preload = preloader.preload();
  const std::optional<double> cold_s = predict_first_pass_s(stage.plan);
  const std::optional<double> warm_s = predict_first_pass_s(stage.plan, preloader.loaded());
  if (cold_s && warm_s) {
    stage.preload.saved_s = *cold_s - *warm_s;
  }
}

void predict_stage(PlannedStage& stage) {
  if (stage.plan.predicted && stage.plan.predicted->first_pass_s > 0) {
    stage.predicted_s = stage.plan.predicted->first_pass_s - stage.preload.saved_s.value_or(0) +
                        static_cast<double>(stage.step_count - 1) * stage.plan.predicted->pass_s;
  }
}

Result<PlannedStage> plan_stage(const Stage& stage, const StageMemory& held) {
  TP_ASSIGN_OR_RETURN(const PlanRequest request, request_beside(stage, held));
  TP_ASSIGN_OR_RETURN(Plan plan, make_plan(stage.model, stage.hardware, request));
  PlannedStage planned;
  planned.name = stage.name;
  planned.step_count = std::max<std::uint64_t>(stage.step_count, 1);
  planned.stays_loaded = stage.stays_loaded;
  planned.plan = std::move(plan);
  planned.held_ram_bytes = held.ram_bytes;
  planned.held_vram_bytes = held.vram_bytes;
  return planned;
}

}  // namespace

Result<std::vector<PlannedStage>> plan_stages(std::span<const Stage> stages) {
  std::vector<PlannedStage> planned;
  StageMemory held;
  for (const Stage& stage : stages) {
    Result<PlannedStage> next = plan_stage(stage, held);
    if (!next) {
      return std::unexpected(std::move(next).error().with_context(
          fmt::format("stage {}", printable(std::string_view(stage.name)))));
    }
    if (stage.stays_loaded) {
      held.ram_bytes += next->plan.ram_used_bytes();
      held.vram_bytes += next->plan.vram_used_bytes();
    }
    planned.push_back(*std::move(next));
  }
  for (std::size_t at = 0; at < planned.size(); ++at) {
    PlannedStage& stage = planned[at];
    stage.ram_peak_bytes = stage.held_ram_bytes + stage.plan.ram_used_bytes();
    stage.vram_peak_bytes = stage.held_vram_bytes + stage.plan.vram_used_bytes();
    if (at > 0) {
      PlannedStage& before = planned[at - 1];
      preload_beside(before, have_drives_apart(stages[at - 1], stages[at]), stage);
      before.ram_peak_bytes += stage.preload.ram_bytes;
      before.vram_peak_bytes += stage.preload.vram_bytes;
    }
    predict_stage(stage);
  }
  return planned;
}

}  // namespace trash_panda::plan
