#include "trash_panda/format/shape.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trash_panda::format {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

/// 1, 2, … count.
std::vector<std::uint64_t> counted_up(std::size_t count) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = 1; i <= count; ++i) {
    numbers.push_back(i);
  }
  return numbers;
}

Shape shape_of(const std::vector<std::uint64_t>& numbers) {
  return {numbers.data(), numbers.data() + numbers.size()};
}

TEST(Shape, HoldsAnyNumberOfDimensions) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 4U, 5U, 100U}) {
    Shape pushed;
    for (const std::uint64_t number : counted_up(count)) {
      pushed.push_back(number);
    }
    EXPECT_EQ(pushed.size(), count);
    EXPECT_EQ(pushed.empty(), count == 0);
    EXPECT_THAT(pushed, ElementsAreArray(counted_up(count)));
    EXPECT_EQ(pushed, shape_of(counted_up(count)));
  }
}

TEST(Shape, IsCopiedAndMovedAtBothSidesOfItsOwnRoom) {
  for (const std::size_t count : {0U, 2U, 3U, 9U}) {
    for (const std::size_t target_count : {0U, 2U, 3U, 9U}) {
      const Shape shape = shape_of(counted_up(count));
      Shape copy = shape_of(counted_up(target_count));
      copy = shape;
      EXPECT_EQ(copy, shape);
      Shape target = shape_of(counted_up(target_count));
      target = std::move(copy);
      EXPECT_EQ(target, shape);
      copy = {7, 8, 9};  // A shape that was moved from can be set again.
      EXPECT_THAT(copy, ElementsAre(7, 8, 9));
      const Shape constructed(std::move(target));
      EXPECT_EQ(constructed, shape);
    }
  }
}

TEST(Shape, IsAssignedToItself) {
  Shape shape = {1, 2, 3};
  const Shape& same = shape;
  shape = same;
  EXPECT_THAT(shape, ElementsAre(1, 2, 3));
}

TEST(Shape, ChangesItsSize) {
  Shape shape = {5};
  shape.resize(3, 1);
  EXPECT_THAT(shape, ElementsAre(5, 1, 1));
  shape.resize(1);
  shape.resize(2);
  EXPECT_THAT(shape, ElementsAre(5, 0));
  EXPECT_THAT(Shape(3), ElementsAre(0, 0, 0));
  shape.clear();
  EXPECT_THAT(shape, IsEmpty());
  shape.push_back(4);
  EXPECT_EQ(shape.front(), 4U);
  EXPECT_EQ(shape.back(), 4U);
}

TEST(Shape, IsOrderedLikeItsNumbers) {
  EXPECT_LT(Shape({1, 2}), Shape({1, 3}));
  EXPECT_LT(Shape({1, 2}), Shape({1, 2, 0}));
  EXPECT_LT(Shape(), Shape({0}));
  EXPECT_NE(Shape({1}), Shape({1, 1}));
}

}  // namespace
}  // namespace trash_panda::format
