#include "memory_ledger.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/units.h"

#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using trash_panda::testing::must;
using trash_panda::testing::stream_options;
using trash_panda::testing::StreamPack;

std::shared_ptr<MemoryLedger> small_ledger() {
  return std::make_shared<MemoryLedger>(MemoryLimit{.size_bytes = 64 * kKiB, .name = "RAM"});
}

std::shared_ptr<MemoryAccount> account_of(const std::shared_ptr<MemoryLedger>& ledger,
                                          std::optional<std::uint64_t> size_bytes_max = {}) {
  return std::make_shared<MemoryAccount>(ledger, "a.panda", size_bytes_max);
}

TEST(MemoryLedger, BooksWholePagesUntilTheBufferEnds) {
  const auto ledger = small_ledger();
  const auto account = account_of(ledger);
  {
    const BookedBuffer first = must(account->take(MemoryUse::kBase, 4096));
    BookedBuffer second = must(account->take(MemoryUse::kSlots, 4097));
    EXPECT_EQ(second.size_bytes(), 8192U);
    EXPECT_EQ(account->now_bytes(), 12288U);
    EXPECT_EQ(ledger->booked_bytes(), 12288U);
    const BookedBuffer moved = std::move(second);
    EXPECT_EQ(account->now_bytes(), 12288U);
  }
  EXPECT_EQ(account->now_bytes(), 0U);
  EXPECT_EQ(account->max_bytes(), 12288U);
  EXPECT_EQ(ledger->booked_bytes(), 0U);
}

TEST(MemoryLedger, NothingTakesNothing) {
  const auto ledger = small_ledger();
  const BookedBuffer none = must(account_of(ledger)->take(MemoryUse::kRamTier, 0));
  EXPECT_EQ(none.size_bytes(), 0U);
  EXPECT_EQ(ledger->booked_bytes(), 0U);
}

TEST(MemoryLedger, AccountsShareItsLimitToTheLastByte) {
  const auto ledger = small_ledger();
  const auto first = account_of(ledger);
  const auto second = account_of(ledger);
  BookedBuffer held = must(first->take(MemoryUse::kRamTier, 48 * kKiB));
  const auto refused = second->take(MemoryUse::kSlots, 16 * kKiB + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kDoesNotFit);
  EXPECT_EQ(refused.error().to_string(),
            "slots of a.panda take 20.5 kB, but weights already take 49.2 kB of 65.5 kB (RAM); "
            "less lookahead or a plan with a smaller RAM tier (--max-ram) takes less");
  ASSERT_TRUE(refused.error().shortage());
  EXPECT_EQ(refused.error().shortage()->needed_bytes, 68 * kKiB);
  EXPECT_EQ(refused.error().shortage()->budget_bytes, 64 * kKiB);
  EXPECT_TRUE(second->take(MemoryUse::kSlots, 16 * kKiB));
  held = BookedBuffer();
  EXPECT_TRUE(second->take(MemoryUse::kSlots, 64 * kKiB));
}

TEST(MemoryLedger, AnAccountMayHaveALimitOfItsOwn) {
  const auto account = account_of(small_ledger(), 8192);
  const BookedBuffer held = must(account->take(MemoryUse::kBase, 4096));
  EXPECT_TRUE(account->take(MemoryUse::kExpanded, 4096));
  const auto refused = account->take(MemoryUse::kExpanded, 4097);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "expanded blocks of a.panda take 8.19 kB, but 4.10 kB of its limit of 8.19 kB are "
            "taken");
}

TEST(MemoryLedger, RefusalBySystemIsNotBooked) {
  const auto ledger = std::make_shared<MemoryLedger>(
      MemoryLimit{.size_bytes = UINT64_MAX, .name = "the address space"});
  const auto account = account_of(ledger);
  const auto refused = account->take(MemoryUse::kBase, std::uint64_t{1} << 60);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kFailed);
  EXPECT_EQ(ledger->booked_bytes(), 0U);
}

TEST(MemoryLedger, SaysWhatIsLeftOfTheTightestLimit) {
  std::uint64_t available_bytes = UINT64_MAX;
  const auto ledger =
      std::make_shared<MemoryLedger>(MemoryLimit{.size_bytes = 64 * kKiB, .name = "RAM"},
                                     [&available_bytes] { return available_bytes; });
  const auto group = std::make_shared<MemoryGroup>(48 * kKiB, "test");
  const auto account = std::make_shared<MemoryAccount>(ledger, "a.panda", 40 * kKiB, group);
  const auto other = std::make_shared<MemoryAccount>(ledger, "b.panda", std::nullopt, group);
  EXPECT_EQ(account->left_bytes(), 40 * kKiB);
  EXPECT_EQ(other->left_bytes(), 48 * kKiB);
  const BookedBuffer taken = must(other->take(MemoryUse::kBase, 12 * kKiB));
  EXPECT_EQ(account->left_bytes(), 36 * kKiB);
  const auto alone = std::make_shared<MemoryAccount>(ledger, "c.panda", std::nullopt);
  EXPECT_EQ(alone->left_bytes(), 52 * kKiB);
  // What was booked and not written to yet is no more available than it seems.
  available_bytes = 20 * kKiB;
  EXPECT_EQ(alone->left_bytes(), 20 * kKiB);
  EXPECT_EQ(alone->left_bytes(12 * kKiB), 8 * kKiB);
  EXPECT_EQ(alone->left_bytes(24 * kKiB), 0U);
}

/// What a model has beyond its plan goes first, and what its plan has only to whoever may ask.
TEST(MemoryLedger, AsksOthersForWhatTheyCanDoWithout) {
  const auto ledger = small_ledger();
  const auto giving = account_of(ledger);
  BookedBuffer promoted = must(giving->take(MemoryUse::kRamTier, 32 * kKiB));
  BookedBuffer planned = must(giving->take(MemoryUse::kRamTier, 32 * kKiB));
  giving->offer([&](std::uint64_t, GiveBack what) -> std::uint64_t {
    BookedBuffer& given =
        promoted.size_bytes() > 0 || what == GiveBack::kPromoted ? promoted : planned;
    const std::uint64_t size_bytes = given.size_bytes();
    given = BookedBuffer();
    return size_bytes;
  });
  const auto asking = account_of(ledger);
  EXPECT_FALSE(asking->take_free(MemoryUse::kBase, 4 * kKiB));
  EXPECT_EQ(promoted.size_bytes(), 32 * kKiB);
  EXPECT_EQ(asking->make_room(8 * kKiB), 32 * kKiB);
  EXPECT_EQ(asking->make_room(40 * kKiB), 32 * kKiB);
  const BookedBuffer first = must(asking->take(MemoryUse::kBase, 32 * kKiB));
  EXPECT_FALSE(asking->take(MemoryUse::kBase, 4 * kKiB));
  EXPECT_EQ(planned.size_bytes(), 32 * kKiB);
  const BookedBuffer second = must(asking->take_from_resting(MemoryUse::kRamTier, 4 * kKiB));
  EXPECT_EQ(planned.size_bytes(), 0U);
}

TEST(MemoryLedger, SnapshotSaysWhoHasWhat) {
  const auto ledger = small_ledger();
  const auto account = account_of(ledger);
  const auto idle = std::make_shared<MemoryAccount>(ledger, "idle.panda", std::nullopt);
  const BookedBuffer base = must(account->take(MemoryUse::kBase, 4096));
  const BookedBuffer slots = must(account->take(MemoryUse::kSlots, 8192));
  EXPECT_THAT(ledger->snapshot(), StartsWith("weights take 12.3 kB of 65.5 kB (RAM); a.panda: "
                                             "base 4.10 kB, slots 8.19 kB; "));
  EXPECT_THAT(ledger->snapshot(), HasSubstr(" of RAM available, "));
  EXPECT_THAT(ledger->snapshot(), Not(HasSubstr("idle.panda")));
}

TEST(MemoryLedger, ThreadsNeverPassTheLimitTogether) {
  const auto ledger = small_ledger();
  std::atomic<std::uint64_t> most_bytes = 0;
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      const auto account = account_of(ledger);
      for (int round = 0; round < 500; ++round) {
        const auto buffer = account->take(MemoryUse::kSlots, 24 * kKiB);
        const std::uint64_t booked_bytes = ledger->booked_bytes();
        if (booked_bytes > most_bytes) {
          most_bytes = booked_bytes;
        }
      }
    });
  }
  threads.clear();
  EXPECT_LE(most_bytes, 48 * kKiB);
  EXPECT_EQ(ledger->booked_bytes(), 0U);
}

TEST(MemoryLedger, OfTheProcessIsSharedByStreamersAndEmptyAfterThem) {
  const std::shared_ptr<MemoryLedger> ledger = MemoryLedger::of_process();
  const std::uint64_t before_bytes = ledger->booked_bytes();
  const StreamPack pack({.tiers = {format::Tier::kDisk, format::Tier::kRam}});
  {
    const Streamer first = must(Streamer::open(pack.path(), stream_options()));
    const Streamer second = must(Streamer::open(pack.path(), stream_options()));
    EXPECT_EQ(ledger->booked_bytes() - before_bytes,
              first.stats().weight_memory_bytes + second.stats().weight_memory_bytes);
  }
  EXPECT_EQ(ledger->booked_bytes(), before_bytes);
}

TEST(MemoryLedger, StreamerThatDoesNotFitLeavesNothingBooked) {
  const std::uint64_t before_bytes = MemoryLedger::of_process()->booked_bytes();
  const StreamPack pack({.tiers = {format::Tier::kDisk, format::Tier::kRam}});
  StreamOptions options = stream_options();
  const std::uint64_t needed_bytes =
      must(Streamer::open(pack.path(), options)).stats().weight_memory_bytes_max;
  options.memory_bytes_max = needed_bytes;
  EXPECT_TRUE(Streamer::open(pack.path(), options));
  options.memory_bytes_max = needed_bytes - 1;
  const Result<Streamer> refused = Streamer::open(pack.path(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kDoesNotFit);
  EXPECT_EQ(MemoryLedger::of_process()->booked_bytes(), before_bytes);
}

}  // namespace
}  // namespace trash_panda::runtime
