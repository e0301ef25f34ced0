#include "simulation_settings.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/nearest_name.h"
#include "trash_panda/base/printable.h"
#include "trash_panda/plan/prediction.h"

#include "setting.h"

namespace trash_panda::cli {

namespace {

constexpr std::array<std::string_view, 7> kSimulationKeys = {
    "disk_bytes_per_s", "decode_bytes_per_s", "expand_bytes_per_s", "link_bytes_per_s",
    "compute_ms",       "host_slot_count",    "device_slot_count"};

/// Combinations that are simulated at most.
constexpr std::size_t kCasesMax = 10'000;

struct Sweep {
  std::string key;
  std::vector<std::string> values;
};

Result<Sweep> parse_sweep(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string key = text.substr(0, equals);
  if (equals == std::string::npos || equals + 1 == text.size()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("--set: '{}' is not KEY=V", printable(text)))
            .with_hint("such as disk_bytes_per_s=400MB,3GB"));
  }
  if (std::ranges::find(kSimulationKeys, key) == kSimulationKeys.end()) {
    const std::string_view nearest = nearest_name(key, kSimulationKeys);
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("--set: unknown key {}", printable(key)))
            .with_hint(nearest.empty()
                           ? fmt::format("known ones are {}", fmt::join(kSimulationKeys, ", "))
                           : fmt::format("did you mean {}?", nearest)));
  }
  Sweep sweep{.key = key, .values = {}};
  std::string_view rest = std::string_view(text).substr(equals + 1);
  while (true) {
    const std::size_t comma = rest.find(',');
    sweep.values.emplace_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) {
      return sweep;
    }
    rest.remove_prefix(comma + 1);
  }
}

void share_out_computation(double total_s, plan::Plan& plan) {
  double known_s = 0;
  double expanded_bytes = 0;
  for (const plan::PlannedBlock& block : plan.blocks) {
    known_s += block.compute_s;
    expanded_bytes += static_cast<double>(block.expanded_bytes);
  }
  for (plan::PlannedBlock& block : plan.blocks) {
    const double part = known_s > 0 ? block.compute_s / known_s
                        : expanded_bytes > 0
                            ? static_cast<double>(block.expanded_bytes) / expanded_bytes
                            : 0;
    block.compute_s = total_s * part;
  }
  plan.compute_source = "given";
}

Result<void> apply(const std::string& key, const std::string& value, plan::Plan& plan) {
  const Setting setting{.text = value, .source = "--set " + key};
  const auto needed = [&setting] {
    return Error(ErrorCode::kUsage,
                 fmt::format("{}: '{}' is no value", setting.source, printable(setting.text)));
  };
  if (key == "compute_ms") {
    TP_ASSIGN_OR_RETURN(const std::optional<double> milliseconds, number_of(setting));
    if (!milliseconds) {
      return std::unexpected(needed());
    }
    share_out_computation(*milliseconds / 1000, plan);
    return {};
  }
  if (key.ends_with("_count")) {
    TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> count, count_of(setting));
    if (!count || *count == 0 || *count > plan.blocks.size() + 1) {
      return std::unexpected(needed());
    }
    (key == "host_slot_count" ? plan.host_slot_count : plan.device_slot_count) = *count;
    return {};
  }
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> rate, size_of(setting));
  if (!rate || *rate == 0) {
    return std::unexpected(needed());
  }
  (key == "disk_bytes_per_s"     ? plan.rates.disk_bytes_per_s
   : key == "decode_bytes_per_s" ? plan.rates.decode_bytes_per_s
   : key == "expand_bytes_per_s" ? plan.rates.expand_bytes_per_s
                                 : plan.rates.link_bytes_per_s) = rate;
  return {};
}

}  // namespace

void use_hardware(const plan::Hardware& hardware, plan::Plan& plan) {
  const auto replace = [](std::optional<std::uint64_t>& rate,
                          const std::optional<std::uint64_t>& other) {
    rate = other ? other : rate;
  };
  plan.measured_at = hardware.measured_at;
  if (!hardware.disks.empty()) {
    replace(plan.rates.disk_bytes_per_s, hardware.disks.front().read_bytes_per_s);
  }
  replace(plan.rates.decode_bytes_per_s, hardware.cpu.expand.zstd_bytes_per_s);
  const std::size_t gpu = plan.request.gpu_index;
  const bool has_gpu = plan.uses_vram() && gpu < hardware.gpus.size();
  const plan::ExpandRates& expand = has_gpu ? hardware.gpus[gpu].expand : hardware.cpu.expand;
  replace(plan.rates.expand_bytes_per_s, plan::expansion_bytes_per_s(plan.blocks, expand));
  if (has_gpu) {
    replace(plan.rates.link_bytes_per_s, hardware.gpus[gpu].h2d_pinned_bytes_per_s);
  }
  plan.rates.forget_zeros();
}

Result<std::vector<SimulationCase>> list_simulation_cases(
    const plan::Plan& plan, const std::vector<std::string>& assignments) {
  std::vector<SimulationCase> cases = {{.settings = {}, .plan = plan}};
  for (const std::string& text : assignments) {
    TP_ASSIGN_OR_RETURN(const Sweep sweep, parse_sweep(text));
    if (cases.size() * sweep.values.size() > kCasesMax) {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("--set: more than {} combinations", kCasesMax)));
    }
    std::vector<SimulationCase> combined;
    for (const SimulationCase& before : cases) {
      for (const std::string& value : sweep.values) {
        SimulationCase& next = combined.emplace_back(before);
        TP_RETURN_IF_ERROR(apply(sweep.key, value, next.plan));
        next.settings.emplace_back(sweep.key, value);
      }
    }
    cases = std::move(combined);
  }
  return cases;
}

}  // namespace trash_panda::cli
