// Blocks that go from disk to pinned RAM, and back, while a GPU computes with them.

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/runtime/memory_group.h"

#include "device.h"
#include "device/support/fake_gpu.h"
#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using fake_cuda::Delays;
using format::Tier;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::fake;
using testing::GpuUser;
using ::testing::HasSubstr;
using testing::must;
using ::testing::SizeIs;
using testing::StreamPack;

constexpr std::size_t kPromotedBlocks = 6;

class PromotionOnDevice : public testing::FakeGpuTest {
 protected:
  static void SetUpTestSuite() {
    pack_ = std::make_unique<StreamPack>(
        StreamPack::Options{.tiers = std::vector<Tier>(kPromotedBlocks, Tier::kDisk)});
    for (std::size_t block = 0; block < kPromotedBlocks; ++block) {
      for (auto& [name, tensor] : pack_->expected(StreamPack::block_name(block) + ".", {})) {
        expected_.emplace(name, std::move(tensor.bytes));
      }
    }
  }
  static void TearDownTestSuite() {
    expected_.clear();
    pack_.reset();
  }
  static std::uint64_t block_bytes() { return pack_->extent("layers.0").stored_bytes; }
  static StreamOptions options(const std::shared_ptr<Device>& device) {
    StreamOptions options = testing::stream_options();
    options.device = device;
    options.lookahead_bytes = 1;
    options.device_slot_count = 2;
    return options;
  }
  /// @return Bytes that were read for the blocks of the pass.
  static std::uint64_t run_pass(Streamer& streamer, GpuUser& user, StreamHandle stream) {
    std::map<std::string, std::unique_ptr<std::string>> seen;
    for (std::size_t block = 0; block < kPromotedBlocks; ++block) {
      const Result<BlockLease> lease = streamer.acquire(block, stream);
      if (!lease) {
        ADD_FAILURE() << lease.error().to_string();
        return 0;
      }
      for (const TensorView& tensor : lease->tensors()) {
        auto& bytes = seen[std::string(tensor.name)] = std::make_unique<std::string>();
        user.read(stream, {tensor.data, tensor.size_bytes}, bytes.get());
      }
    }
    user.synchronize(stream);
    EXPECT_EQ(seen.size(), expected_.size());
    for (const auto& [name, bytes] : seen) {
      EXPECT_TRUE(*bytes == expected_.at(name)) << name;
    }
    return streamer.stats().pass_read_bytes_disk + streamer.stats().pass_read_bytes_ram;
  }

  static std::unique_ptr<StreamPack> pack_;
  static std::map<std::string, std::string> expected_;
};
std::unique_ptr<StreamPack> PromotionOnDevice::pack_;
std::map<std::string, std::string> PromotionOnDevice::expected_;

TEST_F(PromotionOnDevice, KeepsBlocksInPinnedRamUntilAnotherModelNeedsIt) {
  for (const bool is_synchronous : {false, true}) {
    fake().reset({.delays = Delays::kRandom, .seed = 5});
    CudaDeviceOptions gpu = gpu_options();
    gpu.is_synchronous = is_synchronous;
    const std::shared_ptr<Device> device = must(open_cuda_device(gpu));
    GpuUser user;
    const StreamHandle stream = user.make_stream();
    const std::uint64_t base_bytes = pack_->stored_bytes(Tier::kBase);
    const auto group = std::make_shared<MemoryGroup>(
        2 * block_bytes() + base_bytes + kPromotedBlocks * block_bytes(), "test");
    StreamOptions how = options(device);
    how.memory_group = group;
    Streamer streamer = must(Streamer::open(pack_->path(), how));
    run_pass(streamer, user, stream);
    const std::uint64_t slots_pinned_bytes = fake().registered_bytes();
    EXPECT_EQ(streamer.promote(), kPromotedBlocks * block_bytes());
    run_pass(streamer, user, stream);
    run_pass(streamer, user, stream);
    run_pass(streamer, user, stream);
    EXPECT_EQ(run_pass(streamer, user, stream), 0U);
    EXPECT_EQ(fake().registered_bytes() - slots_pinned_bytes,
              is_synchronous ? 0 : kPromotedBlocks * block_bytes());
    {
      StreamOptions other = options(nullptr);
      other.memory_group = group;
      const Streamer opened = must(Streamer::open(pack_->path(), other));
      EXPECT_EQ(streamer.stats().promoted_block_count, kPromotedBlocks - 2);
      EXPECT_EQ(fake().registered_bytes() - slots_pinned_bytes,
                is_synchronous ? 0 : (kPromotedBlocks - 2) * block_bytes());
      run_pass(streamer, user, stream);
      run_pass(streamer, user, stream);
      EXPECT_EQ(run_pass(streamer, user, stream), 2 * block_bytes());
    }
    EXPECT_LE(group->max_bytes(), group->limit_bytes());
  }
}

TEST_F(PromotionOnDevice, AnyThreadMayPromoteWhileBlocksAreCopied) {
  fake().reset({.delays = Delays::kRandom, .seed = 6});
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  Streamer streamer = must(Streamer::open(pack_->path(), options(device)));
  std::atomic<bool> is_over = false;
  std::jthread promoting([&] {
    std::mt19937 random(2);
    while (!is_over) {
      streamer.promote(random() % (3 * block_bytes()));
      streamer.drop(random() % kPromotedBlocks);
      std::this_thread::yield();
    }
  });
  for (int pass = 0; pass < 15 && !HasFailure(); ++pass) {
    run_pass(streamer, user, stream);
  }
  is_over = true;
}

/// A driver that does not unpin keeps what is pinned: that memory must not be freed.
TEST_F(PromotionOnDevice, MemoryThatStaysPinnedIsKept) {
  {
    const std::shared_ptr<Device> device = open_gpu();
    GpuUser user;
    const StreamHandle stream = user.make_stream();
    Streamer streamer = must(Streamer::open(pack_->path(), options(device)));
    streamer.promote();
    run_pass(streamer, user, stream);
    run_pass(streamer, user, stream);
    must(device->synchronize(device->copy_stream()));
    fake().break_unpinning();
    const std::uint64_t taken_bytes = streamer.stats().weight_memory_bytes;
    run_pass(streamer, user, stream);
    // Until its last copy is known to be done, it is not asked to be unpinned.
    while (streamer.stats().promoted_block_count == kPromotedBlocks) {
      EXPECT_EQ(streamer.drop(2), 0U);
      std::this_thread::yield();
    }
    EXPECT_EQ(streamer.stats().weight_memory_bytes, taken_bytes);
    run_pass(streamer, user, stream);
  }
  fake().reset({});
}

TEST_F(PromotionOnDevice, BlocksGoToTheDeviceWhenItHasMemoryAndComeBackWhenItHasNot) {
  ASSERT_LT(pack_->stored_bytes(Tier::kBase) + 4096, block_bytes());
  fake().reset({.vram_bytes = 20 * block_bytes(), .delays = Delays::kRandom, .seed = 7});
  // What is left is enough for the base, two slots and three blocks that stay.
  fake().use_elsewhere(0, 14 * block_bytes());
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  std::vector<std::string> warnings;
  StreamOptions how = options(device);
  how.tiers = std::vector<Tier>(kPromotedBlocks, Tier::kGpu);
  how.device_headroom_bytes = 4096;
  how.log = [&warnings](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) {
      warnings.emplace_back(line);
    }
  };
  Streamer streamer = must(Streamer::open(pack_->path(), how));
  EXPECT_EQ(streamer.stats().device_demoted_block_count, 3U);
  run_pass(streamer, user, stream);
  run_pass(streamer, user, stream);
  EXPECT_EQ(streamer.stats().device_demoted_block_count, 3U);
  fake().use_elsewhere(0, 0);
  run_pass(streamer, user, stream);
  EXPECT_EQ(streamer.stats().device_demoted_block_count, 0U);
  run_pass(streamer, user, stream);
  const int copy_count = fake().calls()["cuMemcpyHtoDAsync_v2"];
  run_pass(streamer, user, stream);
  EXPECT_EQ(fake().calls()["cuMemcpyHtoDAsync_v2"], copy_count);
  fake().use_elsewhere(0, 20 * block_bytes());  // All that is free.
  run_pass(streamer, user, stream);
  EXPECT_EQ(streamer.stats().device_demoted_block_count, 1U);
  run_pass(streamer, user, stream);
  EXPECT_EQ(streamer.stats().device_demoted_block_count, 1U);
  EXPECT_GT(fake().calls()["cuMemcpyHtoDAsync_v2"], copy_count);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("3 blocks of tier gpu wait in RAM")));
}

TEST_F(PromotionOnDevice, BlocksThatWentToTheDeviceTakeNoRam) {
  fake().reset({.vram_bytes = 20 * block_bytes()});
  fake().use_elsewhere(0, 14 * block_bytes());
  const std::uint64_t base_bytes = pack_->stored_bytes(Tier::kBase);
  const auto group = std::make_shared<MemoryGroup>(
      (base_bytes + kPromotedBlocks * block_bytes()) + (base_bytes + 2 * block_bytes()) + 100,
      "test");
  StreamOptions how = testing::stream_options();
  how.memory_group = group;
  how.tiers = std::vector<Tier>(kPromotedBlocks, Tier::kRam);
  std::optional<Streamer> other = must(Streamer::open(pack_->path(), how));
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  how = options(device);
  how.memory_group = group;
  how.tiers = std::vector<Tier>(kPromotedBlocks, Tier::kGpu);
  how.device_headroom_bytes = 4096;
  Streamer streamer = must(Streamer::open(pack_->path(), how));
  EXPECT_EQ(streamer.stats().device_demoted_block_count, 3U);
  EXPECT_EQ(streamer.stats().demoted_block_count, 3U);
  fake().use_elsewhere(0, 0);
  run_pass(streamer, user, stream);
  EXPECT_EQ(streamer.stats().device_demoted_block_count, 0U);
  EXPECT_EQ(streamer.stats().demoted_block_count, 0U);
  other.reset();
  run_pass(streamer, user, stream);
  EXPECT_EQ(streamer.promote(), 0U);
  EXPECT_EQ(streamer.stats().promoted_block_count, 0U);
  EXPECT_EQ(run_pass(streamer, user, stream), 0U);
}

TEST_F(PromotionOnDevice, SaysOnceThatLessOfTheDeviceIsFreeThanPlanned) {
  constexpr std::uint64_t kHeadroomBytes = 4 << 20;
  for (const bool is_short_at_load : {false, true}) {
    fake().reset({});
    if (is_short_at_load) {
      fake().use_elsewhere(0, (std::uint64_t{64} << 20) - kHeadroomBytes / 2);
    }
    const std::shared_ptr<Device> device = open_gpu();
    GpuUser user;
    const StreamHandle stream = user.make_stream();
    std::vector<std::string> warnings;
    StreamOptions how = options(device);
    how.device_headroom_bytes = kHeadroomBytes;
    how.log = [&warnings](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning && line.find("are free on") != std::string_view::npos) {
        warnings.emplace_back(line);
      }
    };
    Streamer streamer = must(Streamer::open(pack_->path(), how));
    EXPECT_THAT(warnings, SizeIs(is_short_at_load ? 1 : 0));
    run_pass(streamer, user, stream);
    run_pass(streamer, user, stream);
    EXPECT_THAT(warnings, SizeIs(is_short_at_load ? 1 : 0));
    fake().use_elsewhere(0, std::uint64_t{64} << 20);
    for (int pass = 0; pass < 3; ++pass) {
      run_pass(streamer, user, stream);
      EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr(" of 67.1 MB are free on Fake GPU 0"),
                                              HasSubstr("less than the 4.19 MB to be kept"),
                                              HasSubstr("--headroom-vram"))));
    }
  }
}

/// A plan for a GPU says how much is to be left.
TEST_F(PromotionOnDevice, TheHeadroomIsThatOfThePlan) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kDisk}});
  plan::Plan plan;
  plan.vram_total_bytes = std::uint64_t{64} << 20;
  plan.vram_budget_bytes = std::uint64_t{60} << 20;
  plan.request.headroom_vram_bytes = 3 << 20;
  for (const bool is_for_gpu : {true, false}) {
    plan.vram_budget_bytes = is_for_gpu ? plan.vram_budget_bytes : 0;
    testing::write_text(pack.path() / "plan.toml", plan::write_plan_toml(plan));
    fake().reset({});
    const std::shared_ptr<Device> device = open_gpu();
    std::string said;
    StreamOptions how = options(device);
    how.log = [&said](LogLevel, std::string_view line) { said += line; };
    Streamer streamer = must(Streamer::open(pack.path(), how));
    must(streamer.acquire(0));
    fake().use_elsewhere(0, std::uint64_t{64} << 20);
    must(streamer.acquire(1));
    must(streamer.acquire(0));
    EXPECT_EQ(said.find("less than the 3.15 MB to be kept") != std::string::npos, is_for_gpu)
        << said;
  }
}

}  // namespace
}  // namespace trash_panda::runtime
