#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/planner.h"

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<PlannedBlock> blocks_of(const std::vector<std::string>& names) {
  std::vector<PlannedBlock> blocks;
  for (const std::string& name : names) {
    blocks.emplace_back().name = name;
  }
  return blocks;
}

const std::vector<PlannedBlock> kBlocks =
    blocks_of({"double_blocks.0", "double_blocks.1", "single_blocks.0", "single_blocks.1",
               "single_blocks.10"});

TEST(SelectBlocks, ReadsIndexesAndRanges) {
  EXPECT_THAT(select_blocks("0", kBlocks).value(), ElementsAre(0));
  EXPECT_THAT(select_blocks("1-3", kBlocks).value(), ElementsAre(1, 2, 3));
  EXPECT_THAT(select_blocks("4,0-1", kBlocks).value(), ElementsAre(0, 1, 4));
  EXPECT_THAT(select_blocks("0-2,1-3", kBlocks).value(), ElementsAre(0, 1, 2, 3));
}

TEST(SelectBlocks, CountsNegativeIndexesFromTheEnd) {
  EXPECT_THAT(select_blocks("-1", kBlocks).value(), ElementsAre(4));
  EXPECT_THAT(select_blocks("-5", kBlocks).value(), ElementsAre(0));
  EXPECT_THAT(select_blocks("3--1", kBlocks).value(), ElementsAre(3, 4));
  EXPECT_THAT(select_blocks("-2--1", kBlocks).value(), ElementsAre(3, 4));
}

TEST(SelectBlocks, MatchesGlobsOverWholeNames) {
  EXPECT_THAT(select_blocks("single_*", kBlocks).value(), ElementsAre(2, 3, 4));
  EXPECT_THAT(select_blocks("*", kBlocks).value(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(select_blocks("*.1", kBlocks).value(), ElementsAre(1, 3));
  EXPECT_THAT(select_blocks("single_blocks.?", kBlocks).value(), ElementsAre(2, 3));
  EXPECT_THAT(select_blocks("*s*_*.1*", kBlocks).value(), ElementsAre(3, 4));
  EXPECT_THAT(select_blocks("double_blocks.0,-1", kBlocks).value(), ElementsAre(0, 4));
  EXPECT_FALSE(select_blocks("single_blocks", kBlocks));
}

TEST(SelectBlocks, RefusesWhatMatchesNothing) {
  for (const char* selector : {"", ",", "0,", "5", "-6", "3-1", "0-5", "blocks.*", "1-", "0x1",
                               "1.5", "99999999999999999999", "-9223372036854775808"}) {
    const auto selected = select_blocks(selector, kBlocks);
    ASSERT_FALSE(selected) << selector;
    EXPECT_EQ(selected.error().code(), ErrorCode::kUsage) << selector;
    EXPECT_THAT(selected.error().hint(), HasSubstr("0 to 4")) << selector;
  }
  EXPECT_FALSE(select_blocks("0", {}));
}

}  // namespace
}  // namespace trash_panda::plan
