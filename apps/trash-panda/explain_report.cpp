#include "explain_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/units.h"
#include "trash_panda/plan/planner.h"
#include "trash_panda/plan/prediction.h"

#include "step_report.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

using plan::BlockExplanation;
using plan::Channel;
using plan::Tier;
using plan::TierMove;
using plan::TierReason;

/// A stall shorter than this part of the pass is the rounding of sums.
constexpr double kStallPart = 1e-6;

std::string_view memory_name(Tier tier) {
  return tier == Tier::kGpu ? "VRAM" : "RAM";
}

/// The next faster tier's move; null where there is none.
const TierMove* faster_move(const plan::Plan& plan, const BlockExplanation& block) {
  const TierMove* next = nullptr;
  for (const TierMove& move : block.moves) {
    next = move.tier < plan.blocks[block.index].tier ? &move : next;
  }
  return next;
}

/// What is short when a move does not fit: "VRAM is full: it takes 373 MB more than is left".
std::string shortage_text(const plan::Plan& plan, const TierMove& move) {
  const bool is_vram_short = move.vram_used_bytes > plan.vram_budget_bytes;
  const std::uint64_t used_bytes = is_vram_short ? move.vram_used_bytes : move.ram_used_bytes;
  const std::uint64_t budget_bytes = is_vram_short ? plan.vram_budget_bytes : plan.ram_budget_bytes;
  return fmt::format("{} is full: with it {} of {}", is_vram_short ? "VRAM" : "RAM",
                     format_bytes(used_bytes), format_bytes(budget_bytes));
}

std::string because(const plan::Plan& plan, const BlockExplanation& block) {
  const TierMove* const faster = faster_move(plan, block);
  switch (block.reason) {
    case TierReason::kAssigned:
      return "as --assign asks";
    case TierReason::kEdited:
      return "changed in the file by hand";
    case TierReason::kFastest:
      return fmt::format("{} has room for it",
                         memory_name(plan.blocks[block.index].tier == Tier::kGpu && plan.uses_vram()
                                         ? Tier::kGpu
                                         : Tier::kRam));
    case TierReason::kNoRoom:
      return shortage_text(plan, *faster);
    case TierReason::kNotFaster:
      return fmt::format("{} has room, but the step would take as long", memory_name(faster->tier));
    case TierReason::kWouldBeFaster:
      return fmt::format("{} has room, and the step would be shorter", memory_name(faster->tier));
    case TierReason::kNotMeasured:
      return fmt::format("{} has room; what that brings is not measured",
                         memory_name(faster->tier));
  }
  return {};
}

/// "read 933 ms, copy 31 ms; waits 120 ms for the disk".
std::string each_step(const plan::Plan& plan, const BlockExplanation& block) {
  std::vector<std::string> parts;
  const auto add = [&](std::string_view what, double seconds) {
    if (seconds > 0) {
      parts.push_back(fmt::format("{} {}", what, format_seconds(seconds)));
    }
  };
  add("read", block.cost.read_s);
  add("decode", block.cost.decode_s);
  add("copy", block.cost.copy_s);
  const bool is_in_place = plan.blocks[block.index].tier == Tier::kGpu ||
                           (plan.blocks[block.index].tier == Tier::kRam && !plan.uses_vram());
  std::string text = parts.empty() ? (is_in_place ? "in place" : "not measured")
                                   : fmt::format("{}", fmt::join(parts, ", "));
  if (plan.predicted && block.stall_s > kStallPart * plan.predicted->pass_s) {
    text += fmt::format("; waits {} for {}", format_seconds(block.stall_s),
                        plan::channel_name(block.stalled_by));
  } else if (plan.predicted && !parts.empty()) {
    text += "; hidden";
  }
  return text;
}

/// Blocks of which the same is to be said.
struct ExplainedRow {
  std::vector<std::size_t> indexes;
  const BlockExplanation* first = nullptr;
  std::vector<std::vector<std::string>> move_cells;
};

/// "+31 ms", "-1.2 s", "the same".
std::string change_text(double seconds) {
  const double size = std::abs(seconds);
  return size < 1e-9 ? "the same"
                     : fmt::format("{}{}", seconds < 0 ? "-" : "+", format_seconds(size));
}

std::string bytes_change_text(std::uint64_t then, std::uint64_t now) {
  return now == then ? std::string("the same")
                     : fmt::format("{}{}", now < then ? "-" : "+",
                                   format_bytes(now < then ? then - now : now - then));
}

std::vector<std::string> move_row(const plan::Plan& plan, const TierMove& move) {
  const double pass_s = plan.predicted ? plan.predicted->pass_s : 0;
  std::vector<std::string> row = {
      fmt::format("  to {}", format::tier_name(move.tier)),
      plan.predicted && move.pass_s ? fmt::format("step {}", change_text(*move.pass_s - pass_s))
                                    : std::string("step not known"),
      fmt::format("RAM {}", bytes_change_text(plan.ram_used_bytes(), move.ram_used_bytes))};
  if (plan.uses_vram()) {
    row.push_back(
        fmt::format("VRAM {}", bytes_change_text(plan.vram_used_bytes(), move.vram_used_bytes)));
  }
  if (!move.fits) {
    row.emplace_back("does not fit");
  }
  return row;
}

std::vector<ExplainedRow> group_rows(const plan::Plan& plan,
                                     std::span<const BlockExplanation> blocks) {
  std::vector<ExplainedRow> rows;
  std::map<std::string, std::size_t> known;
  for (const BlockExplanation& block : blocks) {
    std::vector<std::vector<std::string>> moves;
    std::string key = fmt::format("{} {} {}", format::tier_name(plan.blocks[block.index].tier),
                                  because(plan, block), each_step(plan, block));
    for (const TierMove& move : block.moves) {
      moves.push_back(move_row(plan, move));
      key += fmt::format(" {}", fmt::join(moves.back(), " "));
    }
    const auto [place, is_new] = known.emplace(key, rows.size());
    if (is_new) {
      rows.push_back({.indexes = {}, .first = &block, .move_cells = std::move(moves)});
    }
    rows[place->second].indexes.push_back(block.index);
  }
  return rows;
}

/// What the step waits for, in one line.
std::string binding_text(const plan::Plan& plan) {
  if (!plan.predicted) {
    return "no step is predicted: something that it needs was not measured\n";
  }
  const plan::ChannelTimes times = plan::channel_times(plan::pass_model(plan).blocks);
  const Channel limiting = times.limiting();
  std::string others;
  for (const Channel channel : plan::kChannels) {
    if (channel != limiting && times[channel] > 0) {
      others += fmt::format("{}{} {}", others.empty() ? "; beside it " : ", ",
                            plan::channel_name(channel), format_seconds(times[channel]));
    }
  }
  return fmt::format("step {}: {} binds with {}{}\n", format_seconds(plan.predicted->pass_s),
                     plan::channel_name(limiting), format_seconds(times[limiting]), others);
}

std::string memory_text(const plan::Plan& plan) {
  std::string text = fmt::format("RAM {} of {}", format_bytes(plan.ram_used_bytes()),
                                 format_bytes(plan.ram_budget_bytes));
  if (plan.uses_vram()) {
    text = fmt::format("VRAM {} of {}, ", format_bytes(plan.vram_used_bytes()),
                       format_bytes(plan.vram_budget_bytes)) +
           text;
  }
  return text + "\n";
}

std::string tier_text(const plan::Plan& plan, const BlockExplanation& block) {
  return std::string(format::tier_name(plan.blocks[block.index].tier));
}

}  // namespace

std::vector<std::size_t> all_blocks(const plan::Plan& plan) {
  std::vector<std::size_t> indexes(plan.blocks.size());
  for (std::size_t index = 0; index < indexes.size(); ++index) {
    indexes[index] = index;
  }
  return indexes;
}

std::string why_text(const plan::Plan& plan, std::span<const BlockExplanation> blocks) {
  std::vector<std::vector<std::string>> rows = {{"tier", "because", "each step", "blocks"}};
  for (const ExplainedRow& row : group_rows(plan, blocks)) {
    rows.push_back({tier_text(plan, *row.first), because(plan, *row.first),
                    each_step(plan, *row.first), plan::block_selector(row.indexes)});
  }
  return fmt::format("\n{}{}", format_table("llll", rows), binding_text(plan));
}

std::string explain_text(const plan::Plan& plan, std::span<const BlockExplanation> blocks) {
  std::string text = memory_text(plan) + binding_text(plan);
  for (const ExplainedRow& row : group_rows(plan, blocks)) {
    const std::string selector = plan::block_selector(row.indexes);
    text += fmt::format("\n{} {}  {}: {}; {}\n", row.indexes.size() == 1 ? "block" : "blocks",
                        selector, tier_text(plan, *row.first), because(plan, *row.first),
                        each_step(plan, *row.first));
    text += format_table("lllll", row.move_cells);
  }
  return text;
}

Json explanations_json(const plan::Plan& plan, std::span<const BlockExplanation> blocks) {
  const auto change = [](std::uint64_t then, std::uint64_t now) {
    return static_cast<std::int64_t>(now) - static_cast<std::int64_t>(then);
  };
  Json explained = Json::array();
  for (const BlockExplanation& block : blocks) {
    Json moves = Json::array();
    for (const TierMove& move : block.moves) {
      const bool is_known = plan.predicted && move.pass_s;
      moves.push_back(
          {{"tier", format::tier_name(move.tier)},
           {"pass_s", is_known ? Json(*move.pass_s) : Json()},
           {"pass_change_s", is_known ? Json(*move.pass_s - plan.predicted->pass_s) : Json()},
           {"ram_change_bytes", change(plan.ram_used_bytes(), move.ram_used_bytes)},
           {"vram_change_bytes", change(plan.vram_used_bytes(), move.vram_used_bytes)},
           {"fits", move.fits}});
    }
    explained.push_back(
        {{"index", block.index},
         {"name", plan.blocks[block.index].name},
         {"tier", tier_text(plan, block)},
         {"reason", plan::tier_reason_name(block.reason)},
         {"because", because(plan, block)},
         {"read_s", block.cost.read_s},
         {"decode_s", block.cost.decode_s},
         {"copy_s", block.cost.copy_s},
         {"compute_s", block.cost.compute_s},
         {"stall_s", block.stall_s},
         {"stalled_by", block.stall_s > 0 ? Json(plan::channel_name(block.stalled_by)) : Json()},
         {"moves", moves}});
  }
  return explained;
}

}  // namespace trash_panda::cli
