#include "plan_report.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"

#include "explain_report.h"
#include "step_report.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

using plan::Tier;

constexpr std::array kBlockTiers = {Tier::kGpu, Tier::kRam, Tier::kDisk};

/// Blocks on one line of the bar, so that names, numbers and bar fit 100 columns.
constexpr std::size_t kBarWidth = 64;

std::string model_line(const PlanReport& report, const Console& console) {
  const plan::Plan& plan = *report.plan;
  std::string line = fmt::format(
      "{}  {}", console.styled(Style::kBold, printable(std::string_view(report.model_argument))),
      format_bytes(plan.model_bytes));
  if (!report.model->weights.formats.empty()) {
    line += fmt::format("  {}", fmt::join(report.model->weights.formats, ", "));
  }
  line += "  " + counted(plan.blocks.size(), "block");
  if (report.model->blocks.groups.size() > 1) {
    line += fmt::format(" in {} groups", report.model->blocks.groups.size());
  }
  return line + "\n";
}

std::string machine_line(const PlanReport& report) {
  const plan::Hardware& hardware = *report.hardware;
  std::string line = fmt::format("RAM {}, {} available", format_bytes(hardware.ram_total_bytes),
                                 format_bytes(hardware.ram_available_bytes));
  if (report.plan->ram_limit_source == "cgroup") {
    line += fmt::format(
        ", limited to {} by the control group{}{}", format_bytes(report.plan->ram_limit_bytes),
        hardware.cgroup_path.empty() ? "" : " ", printable(std::string_view(hardware.cgroup_path)));
  }
  if (report.gpu_index < hardware.gpus.size()) {
    const plan::GpuInfo& gpu = hardware.gpus[report.gpu_index];
    line += fmt::format("   GPU {} {} {}, {} free", report.gpu_index, gpu.name,
                        format_bytes(gpu.total_bytes), format_bytes(gpu.free_bytes));
  } else {
    line += "   no GPU";
    line += hardware.gpu_note.empty() ? "" : fmt::format(": {}", hardware.gpu_note);
  }
  return line + "\n";
}

/// What a budget is used for.
struct BudgetUse {
  std::uint64_t block_bytes = 0;
  std::uint64_t base_bytes = 0;
  std::uint64_t kv_cache_bytes = 0;
  std::uint64_t slot_bytes = 0;
};

/// "blocks 8.33 GB, base 520 MB, slots 960 MB", zeros left out.
std::string budget_parts(const BudgetUse& use) {
  std::vector<std::string> parts;
  const auto add = [&](std::string_view name, std::uint64_t bytes) {
    if (bytes != 0) {
      parts.push_back(fmt::format("{} {}", name, format_bytes(bytes)));
    }
  };
  add("blocks", use.block_bytes);
  add("base", use.base_bytes);
  add("KV cache", use.kv_cache_bytes);
  add("slots", use.slot_bytes);
  return fmt::format("{}", fmt::join(parts, ", "));
}

struct TierRow {
  std::uint64_t used_bytes;
  std::uint64_t budget_bytes;
  std::string parts;
};

/// The memory that a tier shares; disk has no budget.
TierRow row_of_tier(const plan::Plan& plan, Tier tier) {
  const bool on_device = tier == Tier::kGpu || !plan.uses_vram();
  BudgetUse use{.block_bytes = plan.extent_bytes(tier)};
  if (on_device) {
    use.base_bytes = plan.base_bytes;
    use.kv_cache_bytes = plan.kv_cache_bytes;
    use.slot_bytes = plan.compute_slot_bytes;
  }
  if (tier == Tier::kGpu) {
    return {plan.vram_used_bytes(), plan.vram_budget_bytes, budget_parts(use)};
  }
  use.slot_bytes += plan.slot_bytes;
  return {plan.ram_used_bytes(), plan.ram_budget_bytes, budget_parts(use)};
}

std::string tier_table(const plan::Plan& plan) {
  std::vector<std::vector<std::string>> rows = {{"tier", "blocks", "stored", "budget"}};
  if (plan.predicted) {
    rows.front().emplace_back("per step");
  }
  std::string footnotes;
  std::string mark;
  for (const Tier tier : kBlockTiers) {
    if (tier == Tier::kGpu && !plan.uses_vram() && plan.block_count(tier) == 0) {
      continue;
    }
    std::string budget = "-";
    if (tier != Tier::kDisk) {
      const TierRow row = row_of_tier(plan, tier);
      mark += '*';
      budget = fmt::format("{} of {}{}", format_bytes(row.used_bytes),
                           format_bytes(row.budget_bytes), row.parts.empty() ? "" : mark);
      footnotes += row.parts.empty() ? "" : fmt::format("{} {}\n", mark, row.parts);
    }
    rows.push_back({std::string(format::tier_name(tier)), format_count(plan.block_count(tier)),
                    format_bytes(plan.moved_bytes(tier)), budget,
                    plan.predicted ? tier_step(plan, tier) : std::string()});
  }
  return format_table("lrrll", rows) + footnotes;
}

/// "model.layers" of "model.layers.12".
std::string_view bar_name(std::string_view block_name) {
  const std::string_view prefix = group_prefix(block_name);
  return prefix.substr(0, prefix.size() - (prefix.empty() ? 0 : 1));
}

std::string block_mark(Tier tier, const Console& console) {
  switch (tier) {
    case Tier::kGpu:
      return console.styled(Style::kGreen, "#");
    case Tier::kRam:
      return console.styled(Style::kYellow, "=");
    default:
      return console.styled(Style::kRed, ".");
  }
}

std::string block_bar(const std::vector<plan::PlannedBlock>& blocks, const Console& console) {
  std::size_t name_width = 0;
  for (const plan::PlannedBlock& block : blocks) {
    name_width = std::max(name_width, display_width(printable(bar_name(block.name))));
  }
  std::string out;
  for (std::size_t begin = 0; begin < blocks.size();) {
    const std::string_view prefix = bar_name(blocks[begin].name);
    std::size_t end = begin;
    std::string bar;
    while (end < blocks.size() && end - begin < kBarWidth && bar_name(blocks[end].name) == prefix) {
      bar += block_mark(blocks[end].tier, console);
      ++end;
    }
    const bool continues = begin > 0 && bar_name(blocks[begin - 1].name) == prefix;
    const std::string name = continues ? std::string() : printable(prefix);
    out += fmt::format(" {}{}  {:>4} {} {}\n", name,
                       std::string(name_width - display_width(name), ' '), begin, bar, end - 1);
    begin = end;
  }
  if (!out.empty()) {
    out.pop_back();
    out += "    # gpu  = ram  . disk\n";
  }
  return out;
}

}  // namespace

std::string tier_counts(const plan::Plan& plan) {
  std::vector<std::string> parts;
  for (const Tier tier : kBlockTiers) {
    if (plan.block_count(tier) != 0) {
      parts.push_back(
          fmt::format("{} {}", format_count(plan.block_count(tier)), format::tier_name(tier)));
    }
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string plan_text(const PlanReport& report, const Console& console) {
  return fmt::format("{}{}\n{}\n{}{}{}", model_line(report, console), machine_line(report),
                     tier_table(*report.plan), block_bar(report.plan->blocks, console),
                     prediction_lines(report),
                     report.why ? why_text(*report.plan, *report.why) : std::string());
}

}  // namespace trash_panda::cli
