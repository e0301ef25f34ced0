#include "trash_panda/format/name_index.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace trash_panda::format {
namespace {

auto names_of(const std::vector<std::string>& names) {
  return [&names](std::size_t i) { return std::string_view(names[i]); };
}

TEST(NameIndex, FindsEveryNameAndNoOther) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 7U, 8U, 9U, 1000U}) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) {
      names.push_back(fmt::format("model.layers.{}.weight", i));
    }
    const NameIndex index(count, names_of(names));
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(index.find(names[i], names_of(names)), i);
    }
    EXPECT_FALSE(index.find("model.layers", names_of(names)));
    EXPECT_FALSE(index.find("", names_of(names)));
    EXPECT_FALSE(index.find_twice(names_of(names)));
  }
}

TEST(NameIndex, FindsNothingWhenEmptyByDefault) {
  const std::vector<std::string> names;
  EXPECT_FALSE(NameIndex().find("a", names_of(names)));
  EXPECT_FALSE(NameIndex().find_twice(names_of(names)));
}

TEST(NameIndex, TellsTwoPositionsOfOneNameTheFirstInFront) {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) {
    names.push_back(fmt::format("t{}", i));
  }
  names.emplace_back("t42");
  const NameIndex index(names.size(), names_of(names));
  EXPECT_EQ(index.find_twice(names_of(names)), (std::pair<std::size_t, std::size_t>(42, 100)));
  EXPECT_EQ(index.find("t42", names_of(names)), 42U);
}

TEST(NameIndex, FollowsNamesThatMove) {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  const std::vector<std::string> moved = {"d", "a", "c", "b"};
  const std::vector<std::uint32_t> new_positions = {1, 3, 2, 0};
  NameIndex index(names.size(), names_of(names));
  index.move_names(new_positions);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    EXPECT_EQ(index.find(moved[i], names_of(moved)), i);
  }
  EXPECT_FALSE(index.find("e", names_of(moved)));
}

TEST(NameIndex, KeepsNamesWithZeroBytesApart) {
  const std::vector<std::string> names = {std::string("a\0b", 3), std::string("a\0c", 3), "a"};
  const NameIndex index(names.size(), names_of(names));
  EXPECT_FALSE(index.find_twice(names_of(names)));
  EXPECT_EQ(index.find(std::string_view("a\0c", 3), names_of(names)), 1U);
}

}  // namespace
}  // namespace trash_panda::format
