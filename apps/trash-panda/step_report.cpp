#include "step_report.h"

#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/units.h"
#include "trash_panda/plan/prediction.h"

namespace trash_panda::cli {

namespace {

using plan::Channel;
using plan::Tier;

/// Part of the copies that the computation hides, in percent.
int hidden_percent(const plan::Prediction& predicted, double copy_s) {
  return copy_s <= 0
             ? 100
             : static_cast<int>(std::lround(100 * std::max(0.0, 1 - predicted.stall_s / copy_s)));
}

}  // namespace

std::string format_seconds(double seconds) {
  if (seconds > 0 && seconds < 0.9995e-3) {
    return fmt::format("{:.3g} µs", seconds * 1e6);
  }
  if (seconds < 0.9995) {
    return fmt::format("{:.3g} ms", seconds * 1000);
  }
  if (seconds < 119.5) {
    return fmt::format("{:.3g} s", seconds);
  }
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  return fmt::format("{} min {} s", whole / 60, whole % 60);
}

std::string tier_step(const plan::Plan& plan, plan::Tier tier) {
  if (plan.block_count(tier) == 0) {
    return {};
  }
  std::vector<plan::BlockCost> costs;
  for (const plan::PlannedBlock& block : plan.blocks) {
    if (block.tier == tier) {
      costs.push_back(plan::block_cost(block, plan.rates, plan.uses_vram()));
    }
  }
  const plan::ChannelTimes times = plan::channel_times(costs);
  std::vector<std::string> parts;
  const auto add = [&](Channel channel, std::string_view what) {
    if (times[channel] > 0) {
      parts.push_back(fmt::format("{} {}", format_seconds(times[channel]), what));
    }
  };
  add(Channel::kDisk, "read");
  add(Channel::kDecode, "decode");
  add(Channel::kLink, "copy");
  const bool is_in_place = tier == Tier::kGpu || (tier == Tier::kRam && !plan.uses_vram());
  return parts.empty() ? (is_in_place ? "in place" : "not measured")
                       : fmt::format("{}", fmt::join(parts, ", "));
}

std::string prediction_lines(const PlanReport& report) {
  const plan::Plan& plan = *report.plan;
  if (!plan.predicted) {
    return {};
  }
  const plan::Prediction& predicted = *plan.predicted;
  std::string line =
      fmt::format("\npredicted step {}   bound {} ({})", format_seconds(predicted.pass_s),
                  format_seconds(predicted.bound_s), predicted.limiting);
  const plan::ChannelTimes times = plan::channel_times(plan::pass_model(plan).blocks);
  const double transfer_s = std::max(times[Channel::kDisk], times[Channel::kLink]);
  if (transfer_s > 0) {
    line += fmt::format("   {} hidden {} %", times[Channel::kLink] > 0 ? "copies" : "reads",
                        hidden_percent(predicted, transfer_s));
  }
  if (predicted.first_pass_s > 0) {
    line += fmt::format("   first pass {}", format_seconds(predicted.first_pass_s));
  }
  line += "\n";
  if (plan.compute_source == "estimate") {
    line += "computation is an estimate from the memory's speed; --compute-ms says what it takes\n";
  } else if (plan.compute_source.empty()) {
    line += "computation is not counted: --compute-ms says what it takes\n";
  }
  const auto add_advice = [&line](const std::optional<plan::MemoryAdvice>& advice,
                                  std::string_view memory) {
    if (advice) {
      line += fmt::format("with {} more {}: {}\n", format_bytes(advice->more_bytes), memory,
                          format_seconds(advice->pass_s));
    }
  };
  add_advice(report.more_ram, "RAM");
  add_advice(report.more_vram, "VRAM");
  return line;
}

}  // namespace trash_panda::cli
