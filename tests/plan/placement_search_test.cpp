#include "placement_search.h"

#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/search_problems.h"

namespace trash_panda::plan {
namespace {

constexpr std::array kAllSizes = {BlockSizes::kEqual, BlockSizes::kTwoKinds,
                                  BlockSizes::kThreeKinds, BlockSizes::kAllDifferent};

/// Seed of a test's random instances: a new one each run, or TP_PROPERTY_SEED to see one again.
std::uint64_t property_seed() {
  const char* const text = std::getenv("TP_PROPERTY_SEED");
  return text == nullptr ? std::random_device{}() : std::strtoull(text, nullptr, 10);
}

/// How far the search stays behind the exhaustive one.
struct Quality {
  std::size_t solved_count = 0;
  std::size_t over_1_percent = 0;
  std::size_t over_5_percent = 0;

  /// For the report of --gtest_output.
  void record() const {
    ::testing::Test::RecordProperty("solved", static_cast<int>(solved_count));
    ::testing::Test::RecordProperty("over_1_percent", static_cast<int>(over_1_percent));
    ::testing::Test::RecordProperty("over_5_percent", static_cast<int>(over_5_percent));
  }
};

void compare_with_exhaustive(const SearchProblem& problem, SearchMethod method, Quality& quality) {
  const double best_s = ExhaustiveSearch(problem).shortest_pass_s();
  const auto found = search_placement(problem, method);
  if (!std::isfinite(best_s)) {
    EXPECT_FALSE(found);
    return;
  }
  ++quality.solved_count;
  if (!found) {
    ++quality.over_5_percent;
    return;
  }
  // Within the budgets, and as fast as it says.
  const double checked_s = fitting_pass_s(problem, found->tiers);
  EXPECT_LE(checked_s, found->pass_s * (1 + 1e-9));
  EXPECT_GE(found->pass_s, best_s * (1 - 1e-9));
  quality.over_1_percent += found->pass_s > best_s * 1.01 ? 1U : 0U;
  quality.over_5_percent += found->pass_s > best_s * 1.05 ? 1U : 0U;
}

TEST(SearchPlacement, FindsTheExhaustiveOptimumOfSmallModels) {
  const std::uint64_t seed = property_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  InstanceMaker maker(seed);
  Quality quality;
  while (quality.solved_count < 2000) {
    const std::size_t block_count = 1 + maker.pick(8);
    const SearchProblem problem =
        maker.make(block_count, kAllSizes[maker.pick(kAllSizes.size())]).problem();
    compare_with_exhaustive(problem, SearchMethod::kAutomatic, quality);
  }
  quality.record();
  EXPECT_EQ(quality.over_1_percent, 0U);
}

TEST(SearchPlacement, FindsTheExhaustiveOptimumOfTenBlocks) {
  const std::uint64_t seed = property_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  InstanceMaker maker(seed);
  Quality quality;
  while (quality.solved_count < 50) {
    const SearchProblem problem = maker.make(10, kAllSizes[maker.pick(kAllSizes.size())]).problem();
    compare_with_exhaustive(problem, SearchMethod::kAutomatic, quality);
  }
  quality.record();
  EXPECT_EQ(quality.over_1_percent, 0U);
}

TEST(SearchPlacement, ComesCloseWithoutTryingAll) {
  // What larger models rely on, held against the optimum of small ones.
  const std::uint64_t seed = property_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  InstanceMaker maker(seed);
  Quality quality;
  while (quality.solved_count < 1000) {
    const std::size_t block_count = 2 + maker.pick(7);
    const SearchProblem problem =
        maker.make(block_count, kAllSizes[maker.pick(kAllSizes.size())]).problem();
    compare_with_exhaustive(problem, SearchMethod::kSpread, quality);
  }
  quality.record();
  EXPECT_LE(static_cast<double>(quality.over_1_percent),
            2 + 0.01 * static_cast<double>(quality.solved_count));
}

/// A pass or infinity.
double pass_s_of(const Instance& instance) {
  const auto found = search_placement(instance.problem());
  return found ? found->pass_s : std::numeric_limits<double>::infinity();
}

/// Gives a machine more of something, by up to 30 %.
void improve_machine(InstanceMaker& maker, Instance& instance) {
  const double factor = maker.between(1, 1.3);
  const auto raise = [factor](std::uint64_t& bytes) {
    bytes = static_cast<std::uint64_t>(static_cast<double>(bytes) * factor);
  };
  switch (maker.pick(5)) {
    case 0:
      raise(instance.vram_bytes);
      break;
    case 1:
      raise(instance.ram_bytes);
      break;
    case 2:
      instance.link_bytes_per_s *= factor;
      break;
    case 3:
      instance.decode_bytes_per_s *= factor;
      break;
    default:
      instance.disk_bytes_per_s *= factor;
  }
}

/// Improves random machines three times each. @return By what part a pass became longer at most.
double longest_setback(std::size_t round_count, std::size_t block_count_min,
                       std::size_t block_count_max) {
  const std::uint64_t seed = property_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  InstanceMaker maker(seed);
  double setback = 0;
  for (std::size_t round = 0; round < round_count; ++round) {
    const std::size_t block_count =
        block_count_min + maker.pick(block_count_max - block_count_min + 1);
    Instance instance = maker.make(block_count, kAllSizes[maker.pick(kAllSizes.size())]);
    double before_s = pass_s_of(instance);
    for (int step = 0; step < 3; ++step) {
      improve_machine(maker, instance);
      const double after_s = pass_s_of(instance);
      if (std::isfinite(before_s)) {
        setback = std::max(setback, after_s / before_s - 1);
      }
      before_s = after_s;
    }
  }
  ::testing::Test::RecordProperty("seed", std::to_string(seed));
  return setback;
}

TEST(SearchPlacement, IsNeverSlowerWithMoreMemoryOrFasterChannels) {
  // Where all placements are tried.
  EXPECT_LE(longest_setback(2000, 1, 8), 1e-9);
}

TEST(SearchPlacement, IsHardlyEverSlowerWithMoreMemoryOrFasterChannelsForMoreBlocks) {
  // One step in some hundred sets back at all; seen were 1.5 % at most.
  EXPECT_LE(longest_setback(100, 11, 57), 0.03);
}

/// By what part the pass of the best single move, or exchange of two, is shorter than that of
/// `tiers`.
///
/// @param exchange_count_max  Exchanges that are tried at most: of more, some at random.
double best_step_gain(const SearchProblem& problem, std::vector<Tier> tiers,
                      std::size_t exchange_count_max, InstanceMaker& maker) {
  const double pass_s = fitting_pass_s(problem, tiers);
  double best_s = pass_s;
  const auto try_tiers = [&] { best_s = std::min(best_s, fitting_pass_s(problem, tiers)); };
  for (Tier& tier : tiers) {
    const Tier own = tier;
    for (const Tier other : kBlockTiers) {
      tier = other;
      try_tiers();
    }
    tier = own;
  }
  const std::size_t pair_count = tiers.size() * (tiers.size() - 1) / 2;
  for (std::size_t index = 0; index < tiers.size(); ++index) {
    for (std::size_t other = index + 1; other < tiers.size(); ++other) {
      const bool is_tried =
          pair_count <= exchange_count_max || maker.pick(pair_count) < exchange_count_max;
      if (is_tried && tiers[index] != tiers[other]) {
        std::swap(tiers[index], tiers[other]);
        try_tiers();
        std::swap(tiers[index], tiers[other]);
      }
    }
  }
  return 1 - best_s / pass_s;
}

void expect_no_step_helps(std::size_t round_count, std::size_t block_count_min,
                          std::size_t block_count_max) {
  const std::uint64_t seed = property_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  InstanceMaker maker(seed);
  constexpr std::size_t kExchangeCountMax = 1600;
  for (std::size_t round = 0; round < round_count;) {
    const BlockSizes sizes = kAllSizes[maker.pick(kAllSizes.size())];
    const std::size_t block_count =
        block_count_min + maker.pick(block_count_max - block_count_min + 1);
    const SearchProblem problem = maker.make(block_count, sizes).problem();
    if (const auto found = search_placement(problem)) {
      ++round;
      EXPECT_LE(best_step_gain(problem, found->tiers, kExchangeCountMax, maker), 0.01)
          << block_count << " blocks of sizes " << static_cast<int>(sizes);
    }
  }
}

TEST(SearchPlacement, LeavesNoStepThatHelps) {
  expect_no_step_helps(/*round_count=*/100, 11, 57);
}

TEST(SearchPlacement, LeavesNoStepThatHelpsForHundredsOfBlocks) {
  expect_no_step_helps(/*round_count=*/8, 150, 400);
}

TEST(SearchPlacement, IsNeverSlowerThanAPlacementGivenToIt) {
  const std::uint64_t seed = property_seed();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  InstanceMaker maker(seed);
  for (int round = 0; round < 60; ++round) {
    const SearchProblem problem =
        maker.make(2 + maker.pick(25), kAllSizes[maker.pick(kAllSizes.size())]).problem();
    std::vector<Tier> other;
    for (std::size_t index = 0; index < problem.blocks.size(); ++index) {
      other.push_back(kBlockTiers[maker.pick(3)]);
    }
    const double other_s = fitting_pass_s(problem, other);
    const auto found = search_placement(problem, SearchMethod::kAutomatic, std::span(&other, 1));
    if (std::isfinite(other_s)) {
      ASSERT_TRUE(found);
      EXPECT_LE(found->pass_s, other_s * (1 + 1e-9));
    }
  }
}

TEST(SearchPlacement, GivesTheSameAnswerTwice) {
  InstanceMaker maker(7);
  for (int round = 0; round < 10; ++round) {
    const SearchProblem problem = maker.make(30, kAllSizes[maker.pick(kAllSizes.size())]).problem();
    const auto first = search_placement(problem);
    const auto second = search_placement(problem);
    ASSERT_EQ(first.has_value(), second.has_value());
    if (first) {
      EXPECT_EQ(first->tiers, second->tiers);
      EXPECT_EQ(first->pass_s, second->pass_s);
    }
  }
}

TEST(SearchPlacement, HonoursWhatIsFixed) {
  InstanceMaker maker(11);
  Instance instance = maker.make(20, BlockSizes::kEqual);
  instance.has_gpu = true;
  instance.vram_bytes = instance.ram_bytes = 12ULL * 300'000'000;
  SearchProblem problem = instance.problem();
  problem.blocks[3].choices[0].is_allowed = problem.blocks[3].choices[1].is_allowed = false;
  problem.resident_count = 4;
  const auto found = search_placement(problem);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tiers[3], Tier::kDisk);
  EXPECT_EQ(std::ranges::count(found->tiers, Tier::kGpu), 4);
}

TEST(SearchPlacement, FindsNothingWhereNothingFits) {
  InstanceMaker maker(13);
  Instance instance = maker.make(20, BlockSizes::kEqual);
  instance.ram_bytes = instance.vram_bytes = 1000;
  EXPECT_FALSE(search_placement(instance.problem()));
}

}  // namespace
}  // namespace trash_panda::plan
