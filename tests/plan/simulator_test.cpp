#include "trash_panda/plan/simulator.h"

#include <algorithm>
#include <limits>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pass_state.h"
#include "plan/support/event_simulation.h"

namespace trash_panda::plan {
namespace {

using ::testing::Each;
using ::testing::Field;

BlockCost resident(double compute_s) {
  return {.read_s = 0, .decode_s = 0, .copy_s = 0, .compute_s = compute_s, .chunk_count = 1};
}

BlockCost in_ram(double copy_s, double compute_s) {
  return {.read_s = 0, .decode_s = 0, .copy_s = copy_s, .compute_s = compute_s, .chunk_count = 1};
}

BlockCost on_disk(double read_s, double copy_s, double compute_s) {
  return {
      .read_s = read_s, .decode_s = 0, .copy_s = copy_s, .compute_s = compute_s, .chunk_count = 1};
}

/// When each computation ends, pass after pass, from a cold start.
std::vector<double> compute_ends_s(const PassModel& model, std::size_t pass_count) {
  PassState state(model.host_slot_count, model.device_slot_count, model.has_link);
  std::vector<double> ends_s;
  for (std::size_t pass = 0; pass < pass_count; ++pass) {
    for (const BlockCost& cost : model.blocks) {
      state.step(cost);
      ends_s.push_back(state.compute_free_s());
    }
  }
  return ends_s;
}

/// Costs in steps of 1/8 s, so that equal events and repetitions are common.
PassModel random_model(std::mt19937_64& engine, std::size_t block_count_max) {
  PassModel model;
  model.has_link = engine() % 3 != 0;
  model.host_slot_count = 1 + engine() % 4;
  model.device_slot_count = 1 + engine() % 3;
  const bool is_decoded = engine() % 2 == 0;
  for (std::size_t count = 1 + engine() % block_count_max; count > 0; --count) {
    BlockCost cost;
    const auto seconds = [&engine] { return static_cast<double>(1 + engine() % 16) / 8; };
    cost.chunk_count = static_cast<double>(1 + engine() % 5);
    cost.compute_s = seconds();
    const std::uint64_t tier = engine() % 3;
    cost.read_s = tier == 2 ? seconds() : 0;
    cost.decode_s = tier == 2 && is_decoded ? seconds() : 0;
    cost.copy_s = tier != 0 && model.has_link ? seconds() : 0;
    model.blocks.push_back(cost);
  }
  return model;
}

TEST(Simulate, TakesTheComputationWhereAllIsResident) {
  PassModel model;
  model.blocks = {resident(1), resident(2), resident(3)};
  const Simulation pass = simulate(model);
  EXPECT_DOUBLE_EQ(pass.pass_s, 6);
  EXPECT_DOUBLE_EQ(pass.stall_s, 0);
  EXPECT_EQ(pass.channels.limiting(), Channel::kCompute);
}

TEST(Simulate, OfNothingTakesNoTime) {
  EXPECT_EQ(simulate_pass_s({}), 0);
  PassModel free_model;
  free_model.blocks = {resident(0)};
  EXPECT_EQ(simulate_pass_s(free_model), 0);
}

TEST(Simulate, HidesReadsBehindTheComputationOfOthers) {
  PassModel model;
  model.blocks = {on_disk(3, 0, 1), resident(1), resident(1), resident(1)};
  // One slot: the read can't begin before the block was computed, three others hide all of it.
  EXPECT_DOUBLE_EQ(simulate_pass_s(model), 4);
  model.blocks[0].read_s = 5;
  EXPECT_DOUBLE_EQ(simulate_pass_s(model), 6);
  model.host_slot_count = 2;
  EXPECT_DOUBLE_EQ(simulate_pass_s(model), 5);
}

TEST(Simulate, CopiesWhileTheBlockBeforeIsComputed) {
  PassModel model;
  model.has_link = true;
  model.blocks = {in_ram(2, 1), in_ram(2, 1)};
  EXPECT_DOUBLE_EQ(simulate_pass_s(model), 6);  // One slot: copy, compute, copy, compute.
  model.device_slot_count = 2;
  const Simulation pass = simulate(model);
  EXPECT_DOUBLE_EQ(pass.pass_s, 4);
  EXPECT_EQ(pass.channels.limiting(), Channel::kLink);
  EXPECT_DOUBLE_EQ(pass.stall_s, 2);
  EXPECT_THAT(pass.blocks, Each(Field(&BlockTimes::stalled_by, Channel::kLink)));
}

TEST(Simulate, StartsToCopyBeforeTheReadIsComplete) {
  PassModel model;
  model.has_link = true;
  model.blocks = {on_disk(4, 4, 1)};
  EXPECT_DOUBLE_EQ(simulate_pass_s(model), 8);  // The next read waits for the end of the copy.
  model.blocks[0].chunk_count = 4;
  EXPECT_DOUBLE_EQ(simulate_pass_s(model), 5);  // 1 for the first chunk, 4 to copy.
}

TEST(Simulate, SaysWhatStallsWaitFor) {
  PassModel model;
  model.has_link = true;
  model.host_slot_count = 2;
  model.device_slot_count = 2;
  model.blocks = {on_disk(8, 1, 1), resident(1), in_ram(1, 1), resident(1)};
  const Simulation pass = simulate(model);
  EXPECT_DOUBLE_EQ(pass.pass_s, 8);
  EXPECT_DOUBLE_EQ(pass.stall_s, 4);
  EXPECT_EQ(pass.blocks[0].stalled_by, Channel::kDisk);
  EXPECT_DOUBLE_EQ(pass.blocks[0].stall_s, 4);
  model.blocks[0].read_s = 1;
  model.blocks[0].decode_s = 8;
  EXPECT_EQ(simulate(model).blocks[0].stalled_by, Channel::kDecode);
}

TEST(Simulate, AddsStallsAndComputationUpToThePass) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 engine(seed);
  for (int round = 0; round < 500; ++round) {
    const PassModel model = random_model(engine, 12);
    const Simulation pass = simulate(model);
    EXPECT_GE(pass.pass_s, pass.channels.bound_s());
    // A pass that alternates with others is their mean, and the timeline is one of them.
    double shown_s = pass.channels[Channel::kCompute];
    for (const BlockTimes& times : pass.blocks) {
      EXPECT_GE(times.stall_s, 0);
      shown_s += times.stall_s;
    }
    EXPECT_NEAR(shown_s, pass.blocks.back().compute_end_s, 1e-9);
    EXPECT_NEAR(shown_s, pass.channels[Channel::kCompute] + pass.stall_s, 1e-9);
    EXPECT_EQ(simulate_pass_s(model), pass.pass_s);
  }
}

TEST(PassState, AgreesWithASimulationOfEveryEvent) {
  // Whatever may be in flight to the GPU, one chunk or all of them: the link serves one after the
  // other, and the next is handed over when one is done.
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 engine(seed);
  std::size_t limited_count = 0;
  for (int round = 0; round < 2000; ++round) {
    const PassModel model = random_model(engine, 10);
    double chunk_s_max = 0;
    for (const BlockCost& cost : model.blocks) {
      chunk_s_max = std::max(chunk_s_max, cost.copy_s / cost.chunk_count);
    }
    const double in_flight_s_max = round % 4 == 0
                                       ? std::numeric_limits<double>::infinity()
                                       : chunk_s_max * static_cast<double>(1 + engine() % 12) / 2;
    EventSimulation events(model, 8, in_flight_s_max);
    const std::vector<double> expected_s = events.compute_ends_s();
    const std::vector<double> ends_s = compute_ends_s(model, 8);
    ASSERT_EQ(ends_s.size(), expected_s.size());
    for (std::size_t index = 0; index < ends_s.size(); ++index) {
      ASSERT_NEAR(ends_s[index], expected_s[index], 1e-9) << "round " << round << " at " << index;
    }
    EXPECT_LE(events.in_flight_s_peak(), std::max(in_flight_s_max, chunk_s_max) * (1 + 1e-12));
    EventSimulation unlimited(model, 8, std::numeric_limits<double>::infinity());
    EXPECT_EQ(unlimited.compute_ends_s().size(), expected_s.size());
    limited_count += unlimited.in_flight_s_peak() > in_flight_s_max ? 1U : 0U;
  }
  EXPECT_GE(limited_count, 200U);  // So the limit was of consequence.
}

TEST(SimulatePass, FindsWhatPassesSettleAt) {
  constexpr std::size_t kPasses = 600;
  constexpr std::size_t kLatePasses = 300;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 engine(seed);
  for (int round = 0; round < 500; ++round) {
    const PassModel model = random_model(engine, 10);
    const std::vector<double> ends_s = compute_ends_s(model, kPasses);
    const double late_s = ends_s.back() - ends_s[(kPasses - kLatePasses) * model.blocks.size() - 1];
    const double expected_s = late_s / static_cast<double>(kLatePasses);
    // The long run is averaged over whole passes, not over whole repetitions.
    EXPECT_NEAR(simulate_pass_s(model), expected_s, 0.004 * expected_s) << "round " << round;
  }
}

TEST(SimulatePass, IsNeverFasterWhenACostRises) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 engine(seed);
  for (int round = 0; round < 2000; ++round) {
    PassModel model = random_model(engine, 12);
    const double before_s = simulate_pass_s(model);
    BlockCost& cost = model.blocks[engine() % model.blocks.size()];
    const double factor = 1 + static_cast<double>(engine() % 100) / 100;
    (engine() % 2 == 0 ? cost.read_s : cost.compute_s) *= factor;
    cost.copy_s *= factor;
    EXPECT_GE(simulate_pass_s(model), before_s * (1 - 1e-9)) << "round " << round;
  }
}

TEST(SimulatePass, IsNeverSlowerWithMoreSlots) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 engine(seed);
  for (int round = 0; round < 2000; ++round) {
    PassModel model = random_model(engine, 12);
    const double before_s = simulate_pass_s(model);
    (engine() % 2 == 0 ? model.host_slot_count : model.device_slot_count) += 1;
    EXPECT_LE(simulate_pass_s(model), before_s * (1 + 1e-9)) << "round " << round;
  }
}

TEST(SimulateFirstPass, ReadsEverythingOnce) {
  PassModel model;
  model.host_slot_count = 4;
  model.blocks = {on_disk(1, 0, 0.5), on_disk(1, 0, 0.5), on_disk(1, 0, 0.5)};
  EXPECT_DOUBLE_EQ(simulate_first_pass_s(model, 2), 2 + 3 + 0.5);
}

}  // namespace
}  // namespace trash_panda::plan
