// Streaming to a GPU: the same tensors as on the CPU, whatever the tiers, the driver and the
// delays.

#include <algorithm>
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

#include "device.h"
#include "device/support/fake_gpu.h"
#include "pin_ledger.h"
#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using fake_cuda::Delays;
using fake_cuda::Fault;
using fake_cuda::Settings;
using format::Dtype;
using format::Tier;
using ::testing::Contains;
using testing::ExpectedTensor;
using testing::fake;
using testing::GpuUser;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::must;
using ::testing::SizeIs;
using testing::StreamPack;

constexpr Tier kDisk = Tier::kDisk;
constexpr Tier kRam = Tier::kRam;
constexpr Tier kG = Tier::kGpu;
using Tensors = std::map<std::string, ExpectedTensor>;

/// What a user's kernels have read of a block, once their stream is synchronised.
struct Reads {
  std::map<std::string, std::pair<Dtype, std::unique_ptr<std::string>>> tensors;

  [[nodiscard]] Tensors contents() const {
    Tensors found;
    for (const auto& [name, tensor] : tensors) {
      found.emplace(name, ExpectedTensor{tensor.first, *tensor.second});
    }
    return found;
  }
};

Reads read_all(GpuUser& user, StreamHandle stream, const std::vector<TensorView>& tensors) {
  Reads reads;
  for (const TensorView& tensor : tensors) {
    auto [at, is_new] = reads.tensors.emplace(
        tensor.name, std::pair(tensor.dtype, std::make_unique<std::string>()));
    user.read(stream, {tensor.data, tensor.size_bytes}, at->second.second.get());
  }
  return reads;
}

std::string block_prefix(std::size_t block) {
  return StreamPack::block_name(block) + ".";
}

class StreamerOnDevice : public testing::FakeGpuTest {
 protected:
  /// The pack and what it must give are worked out once, as slow_floats.h is slow.
  static void SetUpTestSuite() {
    if (pack_ == nullptr) {
      pack_ = std::make_unique<StreamPack>(StreamPack::Options{
          .tiers = {kDisk, kRam, kDisk, kDisk, kRam, kDisk}, .extra_bytes_of_block_1 = 400'000});
    }
  }
  static const Tensors& expected(const std::string& prefix, std::optional<Dtype> compute) {
    static std::map<std::pair<std::string, std::optional<Dtype>>, Tensors> known;
    const auto [at, is_new] = known.try_emplace({prefix, compute});
    if (is_new) {
      at->second = pack_->expected(prefix, compute);
    }
    return at->second;
  }
  StreamOptions options(const std::shared_ptr<Device>& device, std::vector<Tier> tiers) {
    StreamOptions options = testing::stream_options();
    options.device = device;
    options.tiers = std::move(tiers);
    options.compute_dtype = Dtype::kBf16;
    options.log = [this](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning) {
        warnings_.emplace_back(line);
      }
    };
    return options;
  }

  /// Runs blocks in an order without ever waiting, and compares what the kernels saw.
  static void run(Streamer& streamer, GpuUser& user, StreamHandle stream,
                  const std::vector<std::size_t>& order, std::optional<Dtype> compute) {
    std::vector<std::pair<std::size_t, Reads>> seen;
    for (const std::size_t block : order) {
      const Result<BlockLease> lease = streamer.acquire(block, stream);
      ASSERT_TRUE(lease) << lease.error().to_string();
      seen.emplace_back(block, read_all(user, stream, lease->tensors()));
    }
    user.synchronize(stream);
    for (const auto& [block, reads] : seen) {
      // Not EXPECT_EQ: it would print megabytes.
      EXPECT_TRUE(reads.contents() == expected(block_prefix(block), compute)) << "block " << block;
    }
  }
  static std::vector<std::size_t> in_order(int passes) {
    std::vector<std::size_t> order;
    for (int pass = 0; pass < passes; ++pass) {
      for (std::size_t block = 0; block < pack_->block_count(); ++block) {
        order.push_back(block);
      }
    }
    return order;
  }

  static std::unique_ptr<StreamPack> pack_;
  std::vector<std::string> warnings_;
};
std::unique_ptr<StreamPack> StreamerOnDevice::pack_;

struct MixCase {
  const char* name;
  std::vector<Tier> tiers;
  std::size_t device_slot_count;

  friend void PrintTo(const MixCase& mix, std::ostream* out) { *out << mix.name; }
};

class StreamerOnDeviceMixes : public StreamerOnDevice,
                              public ::testing::WithParamInterface<MixCase> {};

TEST_P(StreamerOnDeviceMixes, TensorsAreThoseOfTheCpu) {
  std::mt19937 random(7);
  for (const bool is_synchronous : {false, true}) {
    for (const std::optional<Dtype> compute :
         {std::optional<Dtype>(), std::optional(Dtype::kBf16), std::optional(Dtype::kF32)}) {
      fake().reset({.delays = Delays::kRandom, .seed = static_cast<std::uint32_t>(random())});
      CudaDeviceOptions gpu = gpu_options();
      gpu.is_synchronous = is_synchronous;
      const std::shared_ptr<Device> device = must(open_cuda_device(gpu));
      GpuUser user;
      const StreamHandle stream = user.make_stream();
      StreamOptions how = options(device, GetParam().tiers);
      how.compute_dtype = compute;
      how.device_slot_count = GetParam().device_slot_count;
      how.lookahead_bytes = 100'000;
      how.verify = compute == Dtype::kF32 ? VerifyMode::kFull : VerifyMode::kHeaders;
      Streamer streamer = must(Streamer::open(pack_->path(), how));
      Tensors base = expected("embed.", compute);
      base.insert(expected("head.", compute).begin(), expected("head.", compute).end());
      const Reads base_reads = read_all(user, stream, streamer.base());
      run(streamer, user, stream, in_order(2), compute);
      EXPECT_TRUE(base_reads.contents() == base);
      std::vector<std::size_t> jumps(12);
      std::ranges::generate(jumps, [&] { return random() % pack_->block_count(); });
      run(streamer, user, stream, jumps, compute);
      EXPECT_THAT(fake().violations(), IsEmpty());
      ASSERT_FALSE(HasFailure());
    }
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Mixes, StreamerOnDeviceMixes,
    ::testing::Values(MixCase{"AllDisk", {kDisk, kDisk, kDisk, kDisk, kDisk, kDisk}, 2},
                      MixCase{"AllDiskOneSlot", {kDisk, kDisk, kDisk, kDisk, kDisk, kDisk}, 1},
                      MixCase{"AllRam", {kRam, kRam, kRam, kRam, kRam, kRam}, 2},
                      MixCase{"AllGpu", {kG, kG, kG, kG, kG, kG}, 2},
                      MixCase{"Mixed", {kDisk, kG, kRam, kDisk, kG, kRam}, 3},
                      MixCase{"MixedManySlots", {kRam, kDisk, kG, kDisk, kRam, kDisk}, 9}),
    [](const auto& tested) { return tested.param.name; });

TEST_P(StreamerOnDeviceMixes, TensorsAreThoseOfTheCpuOnARealGpu) {
  if (!testing::missing_gpu().empty()) {
    GTEST_SKIP() << testing::missing_gpu();
  }
  for (const bool is_synchronous : {false, true}) {
    CudaDeviceOptions gpu = gpu_options();
    gpu.library = cuda::kDriverLibrary;
    gpu.is_synchronous = is_synchronous;
    const std::shared_ptr<Device> device = must(open_cuda_device(gpu));
    GpuUser user(0, gpu.library);
    const StreamHandle stream = user.make_stream();
    for (const std::optional<Dtype> compute :
         {std::optional<Dtype>(), std::optional(Dtype::kBf16)}) {
      StreamOptions how = options(device, GetParam().tiers);
      how.compute_dtype = compute;
      how.device_slot_count = GetParam().device_slot_count;
      Streamer streamer = must(Streamer::open(pack_->path(), how));
      run(streamer, user, stream, in_order(3), compute);
    }
  }
}

TEST_F(StreamerOnDevice, SlotsAreReusedOnlyAfterTheirConsumers) {
  // A consumer that takes long, and two slots: with anything less than the event of the last use
  // the copy of the third block would be queued beside it.
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  StreamOptions how = options(device, std::vector(6, kRam));
  how.device_slot_count = 2;
  Streamer streamer = must(Streamer::open(pack_->path(), how));
  run(streamer, user, stream, in_order(4), Dtype::kBf16);
  EXPECT_EQ(streamer.stats().mispredict_count, 0U);
}

TEST_F(StreamerOnDevice, AddressesRepeatWhereSlotsDivideTheBlocks) {
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  StreamOptions how = options(device, std::vector(6, kRam));
  how.device_slot_count = 3;
  Streamer streamer = must(Streamer::open(pack_->path(), how));
  std::map<std::string, std::byte*> addresses;
  for (int pass = 0; pass < 3; ++pass) {
    for (std::size_t block = 0; block < 6; ++block) {
      const BlockLease lease = must(streamer.acquire(block, stream));
      for (const TensorView& tensor : lease.tensors()) {
        const auto [at, is_new] = addresses.emplace(tensor.name, tensor.data);
        EXPECT_EQ(at->second, tensor.data) << tensor.name;
      }
    }
  }
}

TEST_F(StreamerOnDevice, CopiesInFlightAreBounded) {
  const StreamPack pack({.tiers = std::vector(6, kRam)});
  const std::uint64_t block_bytes = pack.extent("layers.0").stored_bytes;
  ASSERT_LT(pack.stored_bytes(Tier::kBase), block_bytes);
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  StreamOptions how = options(device, std::vector(6, kRam));
  how.device_slot_count = 6;
  how.copy_bytes_in_flight_max = 2 * block_bytes;
  const auto copy_count = [] { return fake().calls()["cuMemcpyHtoDAsync_v2"]; };
  // Known before open(), which may return when blocks have been copied already. The base is one.
  const int base_copies = copy_count() + 1;
  Streamer streamer = must(Streamer::open(pack.path(), how));
  const auto run_pass = [&] {
    for (std::size_t block = 0; block < 6; ++block) {
      must(streamer.acquire(block, stream));
    }
  };
  run_pass();
  // All are copied once more, ahead of the next pass.
  while (copy_count() < base_copies + 12) {
    std::this_thread::yield();
  }
  must(device->synchronize(device->copy_stream()));
  fake().pause();
  run_pass();  // All are there; each that ends asks to be copied again, while nothing is done.
  fake().resume();
  EXPECT_EQ(fake().copy_bytes_in_flight_max(), 2 * block_bytes);
}

TEST_F(StreamerOnDevice, MemoryOfTheDeviceIsGivenBackAndTakenAgain) {
  fake().reset({.delays = Delays::kRandom, .seed = 21});
  const std::shared_ptr<Device> device = open_gpu();
  const std::uint64_t bytes_before = fake().device_bytes(0);
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  Streamer streamer =
      must(Streamer::open(pack_->path(), options(device, {kDisk, kG, kRam, kDisk, kG, kRam})));
  run(streamer, user, stream, in_order(2), Dtype::kBf16);
  const StreamStats running = streamer.stats();
  for (int time = 0; time < 3; ++time) {
    must(streamer.release_device());
    must(streamer.release_device());
    EXPECT_EQ(fake().device_bytes(0), bytes_before);
    EXPECT_EQ(streamer.stats().device_memory_bytes, 0U);
    EXPECT_THAT(streamer.base(), IsEmpty());
    const Result<BlockLease> refused = streamer.acquire(0, stream);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kUsage);
    EXPECT_THAT(refused.error().to_string(), HasSubstr("restore"));
    must(streamer.restore_device());
    must(streamer.restore_device());
    const Reads base = read_all(user, stream, streamer.base());
    run(streamer, user, stream, in_order(1), Dtype::kBf16);
    Tensors expected_base = expected("embed.", Dtype::kBf16);
    expected_base.insert(expected("head.", Dtype::kBf16).begin(),
                         expected("head.", Dtype::kBf16).end());
    EXPECT_TRUE(base.contents() == expected_base);
  }
  // What waits in RAM was not read again; the two blocks of tier gpu were.
  const std::uint64_t gpu_bytes =
      pack_->extent("layers.1").stored_bytes + pack_->extent("layers.4").stored_bytes;
  EXPECT_EQ(streamer.stats().read_bytes_ram, running.read_bytes_ram + 3 * gpu_bytes);
  EXPECT_EQ(streamer.stats().device_memory_bytes, running.device_memory_bytes);
}

TEST_F(StreamerOnDevice, MemoryInUseIsNotGivenBack) {
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  Streamer streamer = must(Streamer::open(pack_->path(), options(device, std::vector(6, kRam))));
  {
    const BlockLease lease = must(streamer.acquire(0, stream));
    const Result<void> refused = streamer.release_device();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kUsage);
    EXPECT_THAT(refused.error().to_string(), HasSubstr("layers.0"));
  }
  run(streamer, user, stream, in_order(2), Dtype::kBf16);
}

TEST_F(StreamerOnDevice, RestoringThatFailsCanBeTriedAgain) {
  const std::shared_ptr<Device> device = open_gpu();
  const std::uint64_t bytes_before = fake().device_bytes(0);
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  Streamer streamer = must(Streamer::open(pack_->path(), options(device, std::vector(6, kG))));
  run(streamer, user, stream, in_order(1), Dtype::kBf16);
  must(streamer.release_device());
  for (const int nth : {1, 3, 5, 8}) {
    fake().fail("cuMemAlloc_v2", nth, cuda::kOutOfMemory);
    const Result<void> restored = streamer.restore_device();
    ASSERT_FALSE(restored) << nth;
    EXPECT_EQ(restored.error().code(), ErrorCode::kDoesNotFit);
    EXPECT_EQ(fake().device_bytes(0), bytes_before);
  }
  must(streamer.restore_device());
  run(streamer, user, stream, in_order(2), Dtype::kBf16);
}

TEST_F(StreamerOnDevice, LeasesOfTwoStreamsShareABlock) {
  fake().reset({.delays = Delays::kRandom, .seed = 11});
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle first_stream = user.make_stream();
  const StreamHandle second_stream = user.make_stream();
  StreamOptions how = options(device, std::vector(6, kDisk));
  Streamer streamer = must(Streamer::open(pack_->path(), how));
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<std::pair<std::size_t, Reads>> seen;
    for (std::size_t block = 0; block < 6; ++block) {
      BlockLease first = must(streamer.acquire(block, first_stream));
      const BlockLease second = must(streamer.acquire(block, second_stream));
      seen.emplace_back(block, read_all(user, first_stream, first.tensors()));
      first.release();
      seen.emplace_back(block, read_all(user, second_stream, second.tensors()));
    }
    user.synchronize(first_stream);
    user.synchronize(second_stream);
    for (const auto& [block, reads] : seen) {
      EXPECT_TRUE(reads.contents() == expected(block_prefix(block), Dtype::kBf16)) << block;
    }
  }
}

TEST_F(StreamerOnDevice, TwoDevicesStreamAtOnce) {
  fake().reset({.delays = Delays::kRandom, .seed = 12});
  std::vector<std::thread> threads;
  for (int ordinal = 0; ordinal < 2; ++ordinal) {
    threads.emplace_back([this, ordinal] {
      const std::shared_ptr<Device> device = open_gpu(ordinal);
      GpuUser user(ordinal);
      const StreamHandle stream = user.make_stream();
      Streamer streamer =
          must(Streamer::open(pack_->path(), options(device, {kDisk, kG, kRam, kDisk, kG, kRam})));
      std::vector<std::pair<std::size_t, Reads>> seen;
      for (std::size_t at = 0; at < 18; ++at) {
        const BlockLease lease = must(streamer.acquire(at % 6, stream));
        seen.emplace_back(at % 6, read_all(user, stream, lease.tensors()));
      }
      user.synchronize(stream);
      for (const auto& [block, reads] : seen) {
        EXPECT_TRUE(reads.contents() == pack_->expected(block_prefix(block), Dtype::kBf16));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_F(StreamerOnDevice, ALeaseThatOutlivesItsStreamerStaysValid) {
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  std::optional<Streamer> streamer =
      must(Streamer::open(pack_->path(), options(device, std::vector(6, kDisk))));
  BlockLease lease = must(streamer->acquire(2, stream));
  streamer.reset();
  const Reads reads = read_all(user, stream, lease.tensors());
  user.synchronize(stream);
  EXPECT_TRUE(reads.contents() == expected("layers.2.", Dtype::kBf16));
  lease.release();
}

TEST_F(StreamerOnDevice, BlocksThatDoNotFitWaitInRam) {
  const StreamPack pack({.tiers = std::vector(6, kG)});
  const std::uint64_t block_bytes = pack.extent("layers.0").stored_bytes;
  ASSERT_LT(pack.stored_bytes(Tier::kBase), block_bytes);
  // Room for the base, two slots and three blocks that stay.
  fake().reset({.vram_bytes = 6 * block_bytes});
  const std::shared_ptr<Device> device = open_gpu();
  int asked_count = 0;
  StreamOptions how = options(device, std::vector(6, kG));
  how.compute_dtype.reset();
  how.free_device_cache = [&] { ++asked_count; };
  Streamer streamer = must(Streamer::open(pack.path(), how));
  EXPECT_EQ(asked_count, 1);
  EXPECT_THAT(warnings_, Contains(HasSubstr("3 blocks of tier gpu wait in RAM: Fake GPU 0")));
  EXPECT_LE(streamer.stats().device_memory_bytes, 6 * block_bytes);
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t block = 0; block < 6; ++block) {
      must(streamer.acquire(block));
    }
  }
}

TEST_F(StreamerOnDevice, MoreLeasesThanSlotsIsAnErrorAndNoDeadlock) {
  const std::shared_ptr<Device> device = open_gpu();
  StreamOptions how = options(device, std::vector(6, kDisk));
  how.compute_dtype.reset();
  how.device_slot_count = 2;
  Streamer streamer = must(Streamer::open(pack_->path(), how));
  BlockLease first = must(streamer.acquire(0));
  const BlockLease second = must(streamer.acquire(1));
  const Result<BlockLease> third = streamer.acquire(2);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), ErrorCode::kUsage);
  EXPECT_THAT(third.error().message(), HasSubstr("all slots of the device are held"));
  first.release();
  must(streamer.acquire(2));
}

TEST_F(StreamerOnDevice, ADriverWithAFaultStreamsTheSameTensors) {
  for (const Fault fault : {Fault::kIgnoresWaits, Fault::kPinsWholePages, Fault::kRefusesPins}) {
    fake().reset({.delays = Delays::kRandom, .fault = fault});
    const std::shared_ptr<Device> device = open_gpu();
    EXPECT_EQ(device->description(), "Fake GPU 0, synchronous copies");
    fake().forget_violations();  // Those that the self-test has found.
    GpuUser user;
    const StreamHandle stream = user.make_stream();
    Streamer streamer =
        must(Streamer::open(pack_->path(), options(device, {kDisk, kG, kRam, kDisk, kG, kRam})));
    run(streamer, user, stream, in_order(2), Dtype::kBf16);
    EXPECT_THAT(fake().violations(), IsEmpty());
  }
  fake().reset({});
}

TEST_F(StreamerOnDevice, ADamagedBlockIsSaidAndTheNextIsServed) {
  const StreamPack damaged({.tiers = {kDisk, kDisk, kDisk}});
  damaged.flip_bit(damaged.extent("layers.1"), 5);
  const std::shared_ptr<Device> device = open_gpu();
  StreamOptions how = options(device, {kDisk, kRam, kG});
  how.verify = VerifyMode::kFull;
  Streamer streamer = must(Streamer::open(damaged.path(), how));
  for (int pass = 0; pass < 2; ++pass) {
    must(streamer.acquire(0));
    const Result<BlockLease> lease = streamer.acquire(1);
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error().code(), ErrorCode::kMismatch);
    must(streamer.acquire(2));
  }
}

}  // namespace
}  // namespace trash_panda::runtime
