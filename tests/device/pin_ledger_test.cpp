#include "pin_ledger.h"

#include <list>
#include <memory>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/support/fake_gpu.h"
#include "host_device.h"
#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Tier;
using ::testing::ElementsAre;
using testing::fake;
using testing::must;
using testing::StreamPack;
using ::testing::UnorderedElementsAre;

/// A device that remembers what is pinned.
class PinRecorder final : public HostDevice {
 public:
  Result<void> pin(std::span<std::byte> memory) override {
    if (is_refusing) {
      return std::unexpected(Error(ErrorCode::kDevice, "refused"));
    }
    EXPECT_TRUE(pinned.insert(memory.data()).second);
    ++pin_count;
    return {};
  }
  Result<void> unpin(std::span<std::byte> memory) override {
    if (failing_unpins > 0) {
      --failing_unpins;
      return std::unexpected(Error(ErrorCode::kDevice, "earlier work failed"));
    }
    EXPECT_EQ(pinned.erase(memory.data()), 1U);
    return {};
  }
  std::set<std::byte*> pinned;
  int pin_count = 0;
  int failing_unpins = 0;
  bool is_refusing = false;
};

class PinLedgerOf300 : public ::testing::Test {
 protected:
  PinnedRegion region(std::size_t begin_bytes, std::size_t size_bytes) {
    return ledger_.add(device_, std::span(memory_).subspan(begin_bytes, size_bytes));
  }
  static bool use_once(PinnedRegion& region) {
    const bool is_pinned = region.begin_use();
    region.end_use();
    return is_pinned;
  }
  std::vector<std::byte> memory_ = std::vector<std::byte>(1000);
  PinRecorder device_;
  PinLedger ledger_{300};
};

TEST_F(PinLedgerOf300, PinsAtTheFirstUseAndKeepsPinned) {
  PinnedRegion a = region(0, 300);
  EXPECT_EQ(ledger_.pinned_bytes(), 0U);
  EXPECT_TRUE(use_once(a));
  EXPECT_TRUE(use_once(a));
  EXPECT_EQ(device_.pin_count, 1);
  EXPECT_EQ(ledger_.pinned_bytes(), 300U);
  must(a.close());
  EXPECT_EQ(ledger_.pinned_bytes(), 0U);
  EXPECT_TRUE(device_.pinned.empty());
}

TEST_F(PinLedgerOf300, ThoseUnusedForLongestMakePlaceAndOnlyAsManyAsAreNeeded) {
  PinnedRegion a = region(0, 100);
  PinnedRegion b = region(100, 100);
  PinnedRegion c = region(200, 100);
  EXPECT_TRUE(use_once(a) && use_once(b) && use_once(c));
  EXPECT_TRUE(use_once(a));  // b is the oldest now.
  PinnedRegion d = region(300, 50);
  EXPECT_TRUE(use_once(d));
  EXPECT_THAT(device_.pinned, UnorderedElementsAre(&memory_[0], &memory_[200], &memory_[300]));
  EXPECT_TRUE(use_once(b));  // Needs 50 more: c goes.
  EXPECT_THAT(device_.pinned, UnorderedElementsAre(&memory_[0], &memory_[100], &memory_[300]));
}

TEST_F(PinLedgerOf300, WhatIsInUseStays) {
  PinnedRegion a = region(0, 200);
  EXPECT_TRUE(a.begin_use());
  PinnedRegion b = region(200, 101);
  EXPECT_FALSE(b.begin_use()) << "301 bytes";
  PinnedRegion c = region(400, 100);
  EXPECT_TRUE(use_once(c)) << "exactly the cap";
  EXPECT_LE(ledger_.pinned_bytes(), 300U);
  b.end_use();
  a.end_use();
  EXPECT_TRUE(use_once(b));
}

TEST_F(PinLedgerOf300, WhatCannotFitUnpinsNothing) {
  PinnedRegion a = region(0, 100);
  PinnedRegion b = region(100, 301);
  EXPECT_TRUE(use_once(a));
  EXPECT_FALSE(use_once(b));
  EXPECT_THAT(device_.pinned, ElementsAre(&memory_[0]));
}

TEST_F(PinLedgerOf300, ARefusalIsNotAskedForAgain) {
  PinnedRegion a = region(0, 100);
  device_.is_refusing = true;
  EXPECT_FALSE(use_once(a));
  device_.is_refusing = false;
  EXPECT_FALSE(use_once(a));
  EXPECT_EQ(ledger_.pinned_bytes(), 0U);
}

TEST_F(PinLedgerOf300, UnpinningIsTriedTwiceAndThenSaid) {
  PinnedRegion a = region(0, 100);
  EXPECT_TRUE(use_once(a));
  device_.failing_unpins = 1;
  must(a.close());
  PinnedRegion b = region(100, 100);
  EXPECT_TRUE(use_once(b));
  device_.failing_unpins = 2;
  EXPECT_FALSE(b.close());
  EXPECT_EQ(ledger_.pinned_bytes(), 100U) << "it is still in the books";
}

class PinsOfModels : public testing::FakeGpuTest {
 protected:
  static StreamOptions options(const std::shared_ptr<Device>& device) {
    StreamOptions options = testing::stream_options();
    options.device = device;
    options.tiers = std::vector(4, Tier::kRam);
    return options;
  }
  static void run_pass(Streamer& streamer) {
    for (std::size_t block = 0; block < streamer.block_count(); ++block) {
      must(streamer.acquire(block));
    }
  }
};

TEST_F(PinsOfModels, ModelsThatTakeTurnsDoNotPinAgain) {
  const StreamPack pack({.tiers = std::vector(4, Tier::kRam)});
  const std::shared_ptr<Device> device = open_gpu();
  Streamer first = must(Streamer::open(pack.path(), options(device)));
  Streamer second = must(Streamer::open(pack.path(), options(device)));
  EXPECT_EQ(fake().registered_bytes(), 2 * pack.stored_bytes(Tier::kRam));
  const int pins = fake().calls()["cuMemHostRegister_v2"];
  for (int turn = 0; turn < 3; ++turn) {
    run_pass(first);
    run_pass(second);
  }
  EXPECT_EQ(fake().calls()["cuMemHostRegister_v2"], pins);
}

TEST_F(PinsOfModels, AtTheCapAModelThatRestsMakesPlace) {
  const StreamPack pack({.tiers = std::vector(4, Tier::kRam)});
  const std::uint64_t model_bytes = pack.stored_bytes(Tier::kRam);
  const std::uint64_t block_bytes = pack.extent("layers.0").stored_bytes;
  CudaDeviceOptions gpu = gpu_options();
  gpu.pinned_bytes_max = model_bytes + block_bytes;
  const std::shared_ptr<Device> device = must(open_cuda_device(gpu));
  Streamer first = must(Streamer::open(pack.path(), options(device)));
  run_pass(first);
  Streamer second = must(Streamer::open(pack.path(), options(device)));
  // All of the second, and what is left of the first.
  EXPECT_EQ(fake().registered_bytes(), model_bytes + block_bytes);
  EXPECT_EQ(device->pins()->pinned_bytes(), model_bytes + block_bytes);
  run_pass(second);
  run_pass(first);
  EXPECT_LE(fake().registered_bytes(), *gpu.pinned_bytes_max);
}

TEST_F(PinsOfModels, TheRestOfTheRamTierIsCopiedWithoutPins) {
  const StreamPack pack({.tiers = std::vector(4, Tier::kRam)});
  const std::uint64_t block_bytes = pack.extent("layers.0").stored_bytes;
  CudaDeviceOptions gpu = gpu_options();
  gpu.pinned_bytes_max = 2 * block_bytes + 1;
  const std::shared_ptr<Device> device = must(open_cuda_device(gpu));
  std::vector<std::string> warnings;
  StreamOptions how = options(device);
  how.log = [&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) {
      warnings.emplace_back(line);
    }
  };
  Streamer streamer = must(Streamer::open(pack.path(), how));
  run_pass(streamer);
  EXPECT_EQ(fake().registered_bytes(), 2 * block_bytes);
  EXPECT_THAT(warnings, ElementsAre(::testing::HasSubstr("of the RAM tier are pinned (cap ")));
}

}  // namespace
}  // namespace trash_panda::runtime
