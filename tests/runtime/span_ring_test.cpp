#include "span_ring.h"

#include <cstddef>
#include <numeric>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trash_panda::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> drained(SpanRing<int>& ring) {
  std::vector<int> entries;
  ring.drain([&](int entry) { entries.push_back(entry); });
  return entries;
}

TEST(SpanRing, GivesBackWhatWasAddedInItsOrder) {
  SpanRing<int> ring(4);
  EXPECT_THAT(drained(ring), IsEmpty());
  EXPECT_EQ(ring.push(7), 1U);
  EXPECT_EQ(ring.push(8), 2U);
  EXPECT_THAT(drained(ring), ElementsAre(7, 8));
  EXPECT_THAT(drained(ring), IsEmpty());
}

TEST(SpanRing, RefusesWhatFindsItFullAndKeepsTheRest) {
  SpanRing<int> ring(2);
  EXPECT_EQ(ring.push(1), 1U);
  EXPECT_EQ(ring.push(2), 2U);
  EXPECT_EQ(ring.push(3), 0U);
  EXPECT_THAT(drained(ring), ElementsAre(1, 2));
  EXPECT_EQ(ring.push(4), 1U);
  EXPECT_EQ(ring.push(5), 2U);
  EXPECT_THAT(drained(ring), ElementsAre(4, 5)) << "past the end of the memory";
}

TEST(SpanRing, LosesAndRepeatsNothingBetweenThreads) {
  constexpr int kCount = 20'000;
  SpanRing<int> ring(64);
  std::vector<int> seen;
  std::jthread taker([&] {
    while (seen.size() < kCount) {
      ring.drain([&](int entry) { seen.push_back(entry); });
      std::this_thread::yield();
    }
  });
  for (int at = 0; at < kCount;) {
    if (ring.push(at) > 0) {
      ++at;
    } else {
      std::this_thread::yield();
    }
  }
  taker.join();
  std::vector<int> expected(kCount);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_TRUE(seen == expected);
}

}  // namespace
}  // namespace trash_panda::runtime
