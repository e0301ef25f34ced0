#include "trash_panda/base/nearest_name.h"

#include <array>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace trash_panda {
namespace {

constexpr std::array<std::string_view, 5> kCommands{"plan", "repack", "verify", "inspect",
                                                    "completion"};

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("plan", "plan"), 0U);
}

TEST(EditDistance, CountsASwapOfNeighboursOnce) {
  EXPECT_EQ(edit_distance("paln", "plan"), 1U);
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
}

TEST(EditDistance, IgnoresCase) {
  EXPECT_EQ(edit_distance("PLAN", "plan"), 0U);
}

TEST(NearestName, FindsASlipOfTheFinger) {
  EXPECT_EQ(nearest_name("plna", kCommands), "plan");
  EXPECT_EQ(nearest_name("repak", kCommands), "repack");
  EXPECT_EQ(nearest_name("Verify", kCommands), "verify");
}

TEST(NearestName, FindsABeginning) {
  EXPECT_EQ(nearest_name("comp", kCommands), "completion");
}

TEST(NearestName, IsSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("xyzzy", kCommands), "");
  EXPECT_EQ(nearest_name("co", kCommands), "");
  EXPECT_EQ(nearest_name("", kCommands), "");
  EXPECT_EQ(nearest_name("plan", {}), "");
}

TEST(NearestName, AllowsOneEditPerThreeCharacters) {
  constexpr std::array<std::string_view, 1> kKeys{"abcdef"};
  EXPECT_EQ(nearest_name("abcdxy", kKeys), "abcdef");
  EXPECT_EQ(nearest_name("abcxyz", kKeys), "");
}

TEST(NearestName, PrefersTheFirstOfEquallyNear) {
  constexpr std::array<std::string_view, 2> kKeys{"cat", "bat"};
  EXPECT_EQ(nearest_name("hat", kKeys), "cat");
}

TEST(NearestName, IgnoresHugeInput) {
  EXPECT_EQ(nearest_name(std::string(1 << 20, 'p'), kCommands), "");
}

}  // namespace
}  // namespace trash_panda
