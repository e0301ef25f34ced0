// What every device must do, whichever it is.

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/aligned_buffer.h"

#include "device.h"
#include "device/support/fake_gpu.h"
#include "device_blocks.h"
#include "host_device.h"
#include "pin_ledger.h"

namespace trash_panda::runtime {
namespace {

using testing::fake;
using testing::GpuUser;
using testing::must;
using Settings = fake_cuda::Settings;

struct Kind {
  const char* name;
  bool is_host;
  bool is_synchronous;
  Settings settings;
  bool is_real = false;

  friend void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
};

class DeviceContract : public testing::FakeGpuTest, public ::testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    FakeGpuTest::SetUp();
    if (IsSkipped()) {
      return;
    }
    fake().reset(GetParam().settings);
    if (GetParam().is_host) {
      device_ = std::make_shared<HostDevice>();
      return;
    }
    if (GetParam().is_real && !testing::missing_gpu().empty()) {
      GTEST_SKIP() << testing::missing_gpu();
    }
    CudaDeviceOptions options = gpu_options();
    options.is_synchronous = GetParam().is_synchronous;
    options.library = GetParam().is_real ? runtime::cuda::kDriverLibrary : options.library;
    device_ = must(open_cuda_device(options));
    user_ = std::make_unique<GpuUser>(0, options.library);
    stream_ = user_->make_stream();
  }
  void TearDown() override {
    device_.reset();
    user_.reset();
    FakeGpuTest::TearDown();
  }

  /// Queues a read on the user's stream; `into` is filled after synchronize().
  void read(std::span<const std::byte> memory, std::string* into) {
    if (GetParam().is_host) {
      into->assign(reinterpret_cast<const char*>(memory.data()), memory.size());
    } else {
      user_->read(stream_, memory, into);
    }
  }

  static AlignedBuffer host_bytes(std::size_t size_bytes, int seed) {
    AlignedBuffer buffer = must(AlignedBuffer::create(size_bytes));
    const std::string noise = testing::random_bytes(size_bytes, static_cast<std::uint64_t>(seed));
    std::memcpy(buffer.data(), noise.data(), size_bytes);
    return buffer;
  }
  static std::string text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<GpuUser> user_;
  StreamHandle stream_ = 0;
};

TEST_P(DeviceContract, CopiesArriveBeforeWhatWaitsForThem) {
  constexpr std::size_t kBytes = 100'003;
  const DeviceMemory memory = must(device_->allocate(kBytes));
  EXPECT_EQ(memory.bytes.size(), kBytes);
  const AlignedBuffer source = host_bytes(kBytes, 1);
  const DeviceEvent event = must(device_->make_event());
  EXPECT_TRUE(must(device_->has_passed(event))) << "was never recorded";
  must(device_->copy(memory.bytes, source.span().first(kBytes)));
  must(device_->record(event, device_->copy_stream()));
  must(device_->wait(stream_, event));
  std::string seen;
  read(memory.bytes, &seen);
  must(device_->synchronize(stream_));
  EXPECT_EQ(seen, text(source.span().first(kBytes)));
  must(device_->synchronize(event));
  EXPECT_TRUE(must(device_->has_passed(event)));
}

TEST_P(DeviceContract, SaysWhichGpuItIs) {
  EXPECT_EQ(cuda_ordinal(*device_), GetParam().is_host ? std::nullopt : std::optional(0));
}

TEST_P(DeviceContract, RangesArePinnedExactly) {
  const AlignedBuffer memory = host_bytes(40'000, 2);
  const std::span<std::byte> first = memory.span().subspan(100, 10'000);
  const std::span<std::byte> second = memory.span().subspan(10'100, 9'000);
  must(device_->pin(first));
  must(device_->pin(second));
  if (!GetParam().is_host && !GetParam().is_real) {
    EXPECT_THAT(fake().registrations(),
                ::testing::ElementsAre(::testing::Pair(first.data(), first.size()),
                                       ::testing::Pair(second.data(), second.size())));
    EXPECT_FALSE(device_->pin(memory.span().first(101)));
  }
  must(device_->unpin(first));
  must(device_->unpin(second));
  must(device_->pin(memory.span().first(20'000)));
  must(device_->unpin(memory.span().first(20'000)));
}

TEST_P(DeviceContract, PlacesAreReusedInOrder) {
  constexpr std::size_t kBytes = 5'000;
  const auto made = must(DeviceBlocks::create(
      device_, {.slot_count = 2, .slot_bytes = kBytes, .in_flight_bytes_max = 10 * kBytes}));
  std::vector<AlignedBuffer> sources;
  std::vector<std::string> seen(20);
  int done_count = 0;
  for (std::size_t round = 0; round < seen.size(); ++round) {
    sources.push_back(host_bytes(kBytes, static_cast<int>(round)));
    if (device_->pins() != nullptr) {
      must(device_->pin(sources.back().span().first(kBytes)));
    }
  }
  for (std::size_t round = 0; round < seen.size(); ++round) {
    const DeviceBlocks::Place place = *made->take_slot();
    must(made->fill(place, sources[round].span().first(kBytes), {}, {}, [&] { ++done_count; }));
    must(made->begin_use(place, stream_));
    read(made->bytes(place).first(kBytes), &seen[round]);
    made->end_use(place, stream_);
    made->give_back_slot(place);
  }
  must(device_->synchronize(stream_));
  must(made->poll());
  EXPECT_EQ(done_count, 20);
  for (std::size_t round = 0; round < seen.size(); ++round) {
    EXPECT_EQ(seen[round], text(sources[round].span().first(kBytes))) << round;
    if (device_->pins() != nullptr) {
      must(device_->unpin(sources[round].span().first(kBytes)));
    }
  }
}

TEST_P(DeviceContract, NoMemoryIsAnErrorWithNumbers) {
  if (GetParam().is_host || GetParam().is_real) {
    GTEST_SKIP() << "memory is not limited by the test";
  }
  const Result<DeviceMemory> memory = device_->allocate(std::uint64_t{1} << 30);
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code(), ErrorCode::kDoesNotFit);
  EXPECT_EQ(memory.error().message(),
            "67.1 MB of 67.1 MB are free, 1.07 GB were asked for: Fake GPU 0: allocating: "
            "CUDA_ERROR_OUT_OF_MEMORY (2)");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DeviceContract,
    ::testing::Values(
        Kind{"Host", true, false, {}}, Kind{"FakeCuda", false, false, {}},
        Kind{"FakeCudaLate", false, false, {.delays = fake_cuda::Delays::kRandom, .seed = 5}},
        Kind{"FakeCudaSynchronous", false, true, {.delays = fake_cuda::Delays::kRandom, .seed = 6}},
        Kind{"RealGpu", false, false, {}, true}, Kind{"RealGpuSynchronous", false, true, {}, true}),
    [](const auto& tested) { return tested.param.name; });

class OpenCudaDevice : public testing::FakeGpuTest {
 protected:
  /// The warnings of opening a device on a driver with a fault.
  static std::vector<std::string> open(fake_cuda::Fault fault, std::string* description) {
    fake().reset({.fault = fault});
    std::vector<std::string> warnings;
    CudaDeviceOptions options = gpu_options();
    options.log = [&](LogLevel level, std::string_view line) {
      if (level == LogLevel::kWarning) {
        warnings.emplace_back(line);
      }
    };
    *description = must(open_cuda_device(options))->description();
    return warnings;
  }
  std::string description_;
};

TEST_F(OpenCudaDevice, IsAsynchronousOnASoundDriver) {
  EXPECT_THAT(open(fake_cuda::Fault::kNone, &description_), ::testing::IsEmpty());
  EXPECT_EQ(description_, "Fake GPU 0, asynchronous copies");
}

TEST_F(OpenCudaDevice, EachFaultOfADriverMakesItSynchronousWithOneLineWhy) {
  const std::string start =
      "copies to Fake GPU 0 are waited for one by one, as its driver failed a test: ";
  EXPECT_THAT(
      open(fake_cuda::Fault::kIgnoresWaits, &description_),
      ::testing::ElementsAre(start + "a stream did not wait for the event of a copy on another"));
  EXPECT_EQ(description_, "Fake GPU 0, synchronous copies");
  EXPECT_THAT(fake().violations(), ::testing::SizeIs(1)) << "what the test has found";
  EXPECT_THAT(open(fake_cuda::Fault::kPinsWholePages, &description_),
              ::testing::ElementsAre(start + "Fake GPU 0: pinning host memory: "
                                             "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED (712)"));
  EXPECT_THAT(open(fake_cuda::Fault::kRefusesPins, &description_),
              ::testing::ElementsAre(
                  start + "Fake GPU 0: pinning host memory: CUDA_ERROR_OUT_OF_MEMORY (2)"));
  EXPECT_EQ(description_, "Fake GPU 0, synchronous copies");
  fake().reset({});
}

TEST_F(OpenCudaDevice, KeepsWhatItCouldNotUnpin) {
  EXPECT_THAT(open(fake_cuda::Fault::kForgetsUnpinning, &description_),
              ::testing::ElementsAre(::testing::HasSubstr("unpinning host memory")));
  for (const auto& [memory, size_bytes] : fake().registrations()) {
    const volatile char last = static_cast<const char*>(memory)[size_bytes - 1];
    EXPECT_NE(last, 0) << "it is still there, and as it was written";
  }
  EXPECT_EQ(fake().registrations().size(), 2U);
  fake().reset({});
}

TEST_F(OpenCudaDevice, SaysWhatIsMissing) {
  CudaDeviceOptions options = gpu_options(7);
  EXPECT_THAT(open_cuda_device(options).error().message(),
              ::testing::StartsWith("there is no GPU 7"));
  options.library = "libcuda-that-is-not-there.so.1";
  EXPECT_THAT(open_cuda_device(options).error().message(),
              ::testing::StartsWith("no NVIDIA driver"));
  fake().reset({.device_count = 0});
  EXPECT_THAT(open_cuda_device(gpu_options()).error().message(),
              ::testing::HasSubstr("it finds no GPU"));
}

}  // namespace
}  // namespace trash_panda::runtime
