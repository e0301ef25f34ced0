#include "pass_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

#include "trash_panda/plan/prediction.h"
#include "trash_panda/plan/simulator.h"

#include "json_text.h"

namespace trash_panda::cli {

namespace {

/// Lanes in the order that they are shown in, from 1: thread 0 is special to some viewers.
constexpr std::array<std::string_view, 5> kLanes = {"disk", "decode", "link", "compute", "stalls"};
constexpr std::size_t kStallLane = 4;

class TraceWriter {
 public:
  /// @param start_s  Becomes the time 0.
  explicit TraceWriter(double start_s) : start_s_(start_s) {
    add({{"ph", "M"},
         {"pid", 1},
         {"name", "process_name"},
         {"args", {{"name", "simulated pass"}}}});
    for (std::size_t lane = 0; lane < kLanes.size(); ++lane) {
      add({{"ph", "M"},
           {"pid", 1},
           {"tid", lane + 1},
           {"name", "thread_name"},
           {"args", {{"name", kLanes.at(lane)}}}});
      add({{"ph", "M"},
           {"pid", 1},
           {"tid", lane + 1},
           {"name", "thread_sort_index"},
           {"args", {{"sort_index", lane + 1}}}});
    }
  }

  /// A stretch of time on a lane; none where it has no length.
  void add_span(std::size_t lane, const std::string& name, double begin_s, double end_s,
                const Json& arguments) {
    // Whole nanoseconds: what ends when the next begins does not overlap it by a rounding.
    const double begin_us = microseconds(begin_s);
    const double length_us = std::round((microseconds(end_s) - begin_us) * 1000) / 1000;
    if (length_us > 0) {
      add({{"ph", "X"},
           {"pid", 1},
           {"tid", lane + 1},
           {"name", name},
           {"cat", kLanes.at(lane)},
           {"ts", begin_us},
           {"dur", length_us},
           {"args", arguments}});
    }
  }

  [[nodiscard]] std::string text() const { return text_ + "\n]}\n"; }

 private:
  [[nodiscard]] double microseconds(double seconds) const {
    return std::round((seconds - start_s_) * 1e9) / 1000;
  }

  void add(const Json& event) {
    text_ += is_first_ ? "\n" : ",\n";
    text_ += json_line(event);
    is_first_ = false;
  }

  double start_s_;
  bool is_first_ = true;
  std::string text_{kTraceStart};
};

}  // namespace

std::string pass_trace(const plan::Plan& plan) {
  const plan::PassModel model = plan::pass_model(plan);
  const plan::Simulation simulation = plan::simulate(model);
  double start_s = 0;
  for (std::size_t index = 0; index < plan.blocks.size(); ++index) {
    const plan::BlockTimes& times = simulation.blocks[index];
    const plan::BlockCost& cost = model.blocks[index];
    start_s = std::min({start_s, cost.read_s > 0 ? times.read_begin_s : 0.0,
                        cost.copy_s > 0 ? times.copy_begin_s : 0.0,
                        times.compute_begin_s - times.stall_s});
  }
  TraceWriter trace(start_s);
  for (std::size_t index = 0; index < plan.blocks.size(); ++index) {
    const plan::PlannedBlock& block = plan.blocks[index];
    const plan::BlockTimes& times = simulation.blocks[index];
    const plan::BlockCost& cost = model.blocks[index];
    const Json arguments = {
        {"block", index}, {"tier", format::tier_name(block.tier)}, {"bytes", block.moved_bytes()}};
    if (cost.read_s > 0) {
      trace.add_span(0, block.name, times.read_begin_s, times.read_end_s, arguments);
    }
    if (cost.decode_s > 0) {
      trace.add_span(1, block.name, times.decode_end_s - cost.decode_s, times.decode_end_s,
                     arguments);
    }
    if (cost.copy_s > 0) {
      trace.add_span(2, block.name, times.copy_begin_s, times.copy_end_s, arguments);
    }
    trace.add_span(3, block.name, times.compute_begin_s, times.compute_end_s, arguments);
    const std::string cause = fmt::format("waits for {}", plan::channel_name(times.stalled_by));
    trace.add_span(kStallLane, cause, times.compute_begin_s - times.stall_s, times.compute_begin_s,
                   {{"block", index},
                    {"name", block.name},
                    {"stalled_by", plan::channel_name(times.stalled_by)}});
  }
  return trace.text();
}

}  // namespace trash_panda::cli
