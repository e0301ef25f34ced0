#include "trash_panda/plan/simulator.h"

#include <algorithm>

#include "trash_panda/base/error.h"

#include "pass_state.h"
#include "steady_state.h"

namespace trash_panda::plan {
namespace {

PassState initial_state(const PassModel& model) {
  TP_ASSERT(model.host_slot_count >= 1 && model.device_slot_count >= 1);
  return {model.host_slot_count, model.device_slot_count, model.has_link};
}

double reach_steady_state(const PassModel& model, const ChannelTimes& channels, PassState& state) {
  return SteadyState().run(state, channels, [&model](PassState& running) {
    for (const BlockCost& cost : model.blocks) {
      running.step(cost);
    }
  });
}

}  // namespace

std::string_view channel_name(Channel channel) {
  constexpr std::array<std::string_view, kChannels.size()> kNames = {"disk", "decode", "link",
                                                                     "compute"};
  return kNames[static_cast<std::size_t>(channel)];
}

double ChannelTimes::bound_s() const {
  return *std::ranges::max_element(busy_s);
}

Channel ChannelTimes::limiting() const {
  Channel limiting = Channel::kCompute;
  for (const Channel channel : kChannels) {
    limiting = (*this)[channel] > (*this)[limiting] ? channel : limiting;
  }
  return limiting;
}

ChannelTimes channel_times(std::span<const BlockCost> blocks) {
  ChannelTimes times;
  for (const BlockCost& cost : blocks) {
    times.add(cost);
  }
  return times;
}

double simulate_pass_s(const PassModel& model) {
  PassState state = initial_state(model);
  return reach_steady_state(model, channel_times(model.blocks), state);
}

Simulation simulate(const PassModel& model) {
  Simulation result;
  result.channels = channel_times(model.blocks);
  PassState state = initial_state(model);
  result.pass_s = reach_steady_state(model, result.channels, state);
  for (const BlockCost& cost : model.blocks) {
    state.step(cost, &result.blocks.emplace_back());
    result.stall_s += result.blocks.back().stall_s;
  }
  return result;
}

double simulate_first_pass_s(const PassModel& costs, double start_s) {
  PassState state = initial_state(costs);
  state.start_at(start_s);
  for (const BlockCost& cost : costs.blocks) {
    state.step(cost);
  }
  return state.compute_free_s();
}

}  // namespace trash_panda::plan
