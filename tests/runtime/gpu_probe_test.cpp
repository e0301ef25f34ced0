#include "cuda/gpu_probe.h"

#include <array>
#include <cstring>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/runtime/probe.h"

namespace trash_panda::runtime::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Two GPUs behind plain functions, which count what they hand out. The second can be broken.
struct FakeState {
  Status init = kSuccess;
  Status count_status = kSuccess;
  int count = 2;
  Status free_status_of_1 = kSuccess;
  int memory_clock_khz = 7'501'000;  ///< Of an RTX 3060, whose maker says 360 GB/s.
  int retained = 0;
  int pushed = 0;
  Device current = -1;
};
FakeState fake;

Context context_of(Device device) {
  static std::array<int, 2> places;
  return reinterpret_cast<Context>(&places.at(static_cast<std::size_t>(device)));
}

Functions fake_functions() {
  Functions functions;
  functions.Init = [](unsigned) { return fake.init; };
  functions.GetErrorName = [](Status status, const char** name) {
    *name = "CUDA_ERROR_OUT_OF_MEMORY";
    return status == 2 ? kSuccess : 1;
  };
  functions.DeviceGetCount = [](int* count) {
    *count = fake.count;
    return fake.count_status;
  };
  functions.DeviceGet = [](Device* device, int ordinal) {
    *device = ordinal;
    return kSuccess;
  };
  functions.DeviceGetName = [](char* name, int size_bytes, Device device) {
    std::strncpy(name, device == 0 ? "First GPU" : "Second GPU",
                 static_cast<std::size_t>(size_bytes));
    return kSuccess;
  };
  functions.DeviceGetUuid_v2 = [](Uuid* uuid, Device device) {
    for (int at = 0; at < 16; ++at) {
      uuid->bytes[at] = static_cast<char>(at * 16 + device);
    }
    return kSuccess;
  };
  functions.DeviceTotalMem_v2 = [](std::size_t* size_bytes, Device device) {
    *size_bytes = device == 0 ? 24'000'000'000 : 12'000'000'000;
    return kSuccess;
  };
  functions.DeviceGetAttribute = [](int* value, DeviceAttribute attribute, Device device) {
    switch (attribute) {
      case kComputeCapabilityMajor:
        *value = 8;
        break;
      case kComputeCapabilityMinor:
        *value = 6;
        break;
      case kMemoryClockKhz:
        *value = fake.memory_clock_khz;
        break;
      case kMemoryBusWidthBits:
        *value = 192;
        break;
      default:
        return 1;
    }
    return device == 0 ? kSuccess : 1;
  };
  functions.DeviceGetPCIBusId = [](char* address, int size_bytes, Device device) {
    std::strncpy(address, "0000:01:00.0", static_cast<std::size_t>(size_bytes));
    return device == 0 ? kSuccess : 1;
  };
  functions.DevicePrimaryCtxRetain = [](Context* context, Device device) {
    *context = context_of(device);
    ++fake.retained;
    return kSuccess;
  };
  functions.DevicePrimaryCtxRelease_v2 = [](Device) {
    --fake.retained;
    return kSuccess;
  };
  functions.CtxPushCurrent_v2 = [](Context context) {
    ++fake.pushed;
    fake.current = context == context_of(0) ? 0 : 1;
    return kSuccess;
  };
  functions.CtxPopCurrent_v2 = [](Context*) {
    --fake.pushed;
    return kSuccess;
  };
  functions.MemGetInfo_v2 = [](std::size_t* free_bytes, std::size_t* total_bytes) {
    *free_bytes = fake.current == 0 ? 20'000'000'000 : 11'000'000'000;
    *total_bytes = 24'000'000'000;
    return fake.current == 1 ? fake.free_status_of_1 : kSuccess;
  };
  return functions;
}

class ProbeGpus : public ::testing::Test {
 protected:
  void SetUp() override { fake = FakeState(); }
  void TearDown() override {
    EXPECT_EQ(fake.retained, 0) << "contexts that were not given back";
    EXPECT_EQ(fake.pushed, 0) << "contexts that were left current";
  }
  static plan::Hardware probe() {
    plan::Hardware hardware;
    probe_gpus(Driver::from_functions(fake_functions()), hardware);
    return hardware;
  }
};

TEST_F(ProbeGpus, DescribesEachGpu) {
  const plan::Hardware hardware = probe();
  ASSERT_THAT(hardware.gpus, SizeIs(2));
  EXPECT_EQ(hardware.gpus[0].name, "First GPU");
  EXPECT_EQ(hardware.gpus[0].uuid, "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0");
  EXPECT_EQ(hardware.gpus[0].total_bytes, 24'000'000'000U);
  EXPECT_EQ(hardware.gpus[0].free_bytes, 20'000'000'000U);
  EXPECT_EQ(hardware.gpus[0].compute_capability, "8.6");
  EXPECT_EQ(hardware.gpus[0].pci_address, "0000:01:00.0");
  EXPECT_EQ(hardware.gpus[0].memory_bytes_per_s, 360'048'000'000U);
  EXPECT_EQ(hardware.gpus[1].name, "Second GPU");
  EXPECT_EQ(hardware.gpus[1].compute_capability, "") << "a driver that does not say";
  EXPECT_EQ(hardware.gpus[1].pci_address, "");
  EXPECT_FALSE(hardware.gpus[1].memory_bytes_per_s);
  EXPECT_EQ(hardware.gpus[1].uuid, "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1");
  EXPECT_EQ(hardware.gpus[1].total_bytes, 12'000'000'000U);
  EXPECT_EQ(hardware.gpus[1].free_bytes, 11'000'000'000U);
  EXPECT_EQ(hardware.gpu_note, "");
}

TEST_F(ProbeGpus, KnowsNoMemoryRateWithoutAClock) {
  // As virtual GPUs answer.
  fake.memory_clock_khz = 0;
  EXPECT_FALSE(probe().gpus[0].memory_bytes_per_s);
}

TEST_F(ProbeGpus, LeavesOutAGpuThatCannotBeAsked) {
  fake.free_status_of_1 = 2;
  const plan::Hardware hardware = probe();
  ASSERT_THAT(hardware.gpus, SizeIs(1));
  EXPECT_EQ(hardware.gpus[0].name, "First GPU");
  EXPECT_EQ(hardware.gpu_note, "GPU 1: free memory: CUDA_ERROR_OUT_OF_MEMORY (2)");
}

TEST_F(ProbeGpus, NamesWhyThereIsNone) {
  fake.init = kNoDevice;
  EXPECT_EQ(probe().gpu_note, "the NVIDIA driver is there, but it finds no GPU");
  fake.init = 999;
  EXPECT_EQ(probe().gpu_note, "the NVIDIA driver does not start: unknown error (999)");
  fake.init = kSuccess;
  fake.count = 0;
  EXPECT_EQ(probe().gpu_note, "the NVIDIA driver is there, but it finds no GPU");
  fake.count_status = 2;
  EXPECT_EQ(probe().gpu_note, "counting GPUs: CUDA_ERROR_OUT_OF_MEMORY (2)");
  EXPECT_THAT(probe().gpus, IsEmpty());
}

TEST(LoadDriver, LibraryThatIsNotThere) {
  const Result<Driver> driver = Driver::load("libcuda-that-is-not-there.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code(), ErrorCode::kDevice);
  EXPECT_EQ(driver.error().message(),
            "no NVIDIA driver (libcuda-that-is-not-there.so.1 not found)");
}

TEST(LoadDriver, LibraryThatIsNoDriver) {
  const Result<Driver> driver = Driver::load("libc.so.6");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().message(), "libc.so.6 lacks cuInit");
}

TEST(ProbeHardware, FindsThisMachinesMemoryAndSaysAboutGpus) {
  const plan::Hardware hardware = probe_hardware();
  EXPECT_GT(hardware.ram_total_bytes, 0U);
  EXPECT_LE(hardware.ram_available_bytes, hardware.ram_total_bytes);
  EXPECT_TRUE(!hardware.gpus.empty() || !hardware.gpu_note.empty());
}

}  // namespace
}  // namespace trash_panda::runtime::cuda
