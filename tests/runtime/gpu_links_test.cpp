#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/units.h"

#include "cuda/gpu_probe.h"
#include "cuda/link_probe.h"
#include "cuda/nvml.h"

namespace trash_panda::runtime::cuda {
namespace {

using ::testing::HasSubstr;

/// A GPU whose copies are memcpy, and that counts what it hands out.
struct LinkFake {
  int contexts = 0;
  int pushed = 0;
  int streams = 0;
  std::map<DeviceAddress, std::string> device_memory;
  std::map<void*, std::string> pinned_memory;
  Status host_alloc = kSuccess;
  Status copy = kSuccess;
  std::uint64_t to_copies = 0;
  std::uint64_t from_copies = 0;
};
LinkFake link_fake;

Functions link_functions() {
  Functions functions;
  functions.Init = [](unsigned) { return kSuccess; };
  functions.GetErrorName = [](Status, const char** name) {
    *name = "CUDA_ERROR_OUT_OF_MEMORY";
    return kSuccess;
  };
  functions.DeviceGetCount = [](int* count) {
    *count = 2;
    return kSuccess;
  };
  functions.DeviceGet = [](Device* device, int ordinal) {
    *device = ordinal;
    return kSuccess;
  };
  functions.DeviceGetUuid_v2 = [](Uuid* uuid, Device device) {
    std::memset(uuid->bytes, device, sizeof(uuid->bytes));
    return kSuccess;
  };
  functions.DevicePrimaryCtxRetain = [](Context* context, Device) {
    *context = nullptr;
    ++link_fake.contexts;
    return kSuccess;
  };
  functions.DevicePrimaryCtxRelease_v2 = [](Device) {
    --link_fake.contexts;
    return kSuccess;
  };
  functions.CtxPushCurrent_v2 = [](Context) {
    ++link_fake.pushed;
    return kSuccess;
  };
  functions.CtxPopCurrent_v2 = [](Context*) {
    --link_fake.pushed;
    return kSuccess;
  };
  functions.MemAlloc_v2 = [](DeviceAddress* address, std::size_t size_bytes) {
    *address = link_fake.device_memory.size() + 1;
    link_fake.device_memory[*address] = std::string(size_bytes, '\0');
    return kSuccess;
  };
  functions.MemFree_v2 = [](DeviceAddress address) {
    return link_fake.device_memory.erase(address) == 1 ? kSuccess : 1;
  };
  functions.MemHostAlloc = [](void** memory, std::size_t size_bytes, unsigned) {
    if (link_fake.host_alloc != kSuccess) {
      return link_fake.host_alloc;
    }
    std::string bytes(size_bytes, '\0');
    *memory = bytes.data();
    link_fake.pinned_memory[*memory] = std::move(bytes);
    return kSuccess;
  };
  functions.MemFreeHost = [](void* memory) {
    return link_fake.pinned_memory.erase(memory) == 1 ? kSuccess : 1;
  };
  functions.MemcpyHtoDAsync_v2 = [](DeviceAddress target, const void* source,
                                    std::size_t size_bytes, Stream) {
    ++link_fake.to_copies;
    std::memcpy(link_fake.device_memory.at(target).data(), source, size_bytes);
    return link_fake.copy;
  };
  functions.MemcpyDtoHAsync_v2 = [](void* target, DeviceAddress source, std::size_t size_bytes,
                                    Stream) {
    ++link_fake.from_copies;
    std::memcpy(target, link_fake.device_memory.at(source).data(), size_bytes);
    return link_fake.copy;
  };
  functions.StreamCreate = [](Stream* stream, unsigned flags) {
    static std::array<int, 16> places;
    *stream = reinterpret_cast<Stream>(&places.at(static_cast<std::size_t>(link_fake.streams)));
    ++link_fake.streams;
    return flags == kStreamNonBlocking ? kSuccess : 1;
  };
  functions.StreamSynchronize = [](Stream) { return kSuccess; };
  functions.StreamDestroy_v2 = [](Stream) {
    --link_fake.streams;
    return kSuccess;
  };
  return functions;
}

class MeasureLinks : public ::testing::Test {
 protected:
  void SetUp() override {
    link_fake = LinkFake();
    Uuid second = {};
    std::memset(second.bytes, 1, sizeof(second.bytes));
    hardware_.gpus.push_back({.name = "Second GPU", .uuid = to_string(second)});
  }
  void TearDown() override {
    EXPECT_EQ(link_fake.contexts, 0);
    EXPECT_EQ(link_fake.pushed, 0);
    EXPECT_EQ(link_fake.streams, 0);
    EXPECT_TRUE(link_fake.device_memory.empty());
    EXPECT_TRUE(link_fake.pinned_memory.empty());
  }
  void measure(StopFlag stop = nullptr) {
    const Result<Driver> driver = Driver::from_functions(link_functions());
    ASSERT_TRUE(driver);
    measure_links(*driver, effort_plan(ProbeEffort::kBrief), 3 * kMiB, stop, hardware_);
  }

  plan::Hardware hardware_;
};

TEST_F(MeasureLinks, FillsEveryDirection) {
  measure();
  const plan::GpuInfo& gpu = hardware_.gpus.front();
  EXPECT_GT(gpu.h2d_pinned_bytes_per_s, 0U);
  EXPECT_GT(gpu.h2d_pageable_bytes_per_s, 0U);
  EXPECT_GT(gpu.d2h_pinned_bytes_per_s, 0U);
  EXPECT_GT(gpu.d2h_pageable_bytes_per_s, 0U);
  EXPECT_GT(gpu.h2d_duplex_bytes_per_s, 0U);
  EXPECT_EQ(hardware_.gpu_note, "");
  EXPECT_GT(link_fake.to_copies, 0U);
  EXPECT_GT(link_fake.from_copies, 0U);
}

TEST_F(MeasureLinks, RefusalsAreSaidAndNothingStaysBehind) {
  link_fake.host_alloc = 2;
  measure();
  EXPECT_EQ(hardware_.gpus.front().h2d_pinned_bytes_per_s, std::nullopt);
  EXPECT_EQ(hardware_.gpu_note,
            "Second GPU not measured: pinned memory: CUDA_ERROR_OUT_OF_MEMORY (2)");
  link_fake.host_alloc = kSuccess;
  link_fake.copy = 700;
  measure();
  EXPECT_THAT(hardware_.gpu_note, HasSubstr("; Second GPU not measured: copy"));
}

TEST_F(MeasureLinks, AGpuThatIsGoneIsSaid) {
  hardware_.gpus.front().uuid = "GPU-of-another-machine";
  measure();
  EXPECT_THAT(hardware_.gpu_note, HasSubstr("the driver does not know it"));
}

TEST_F(MeasureLinks, Stops) {
  const std::atomic<bool> stop = true;
  measure(&stop);
  EXPECT_EQ(hardware_.gpus.front().h2d_pinned_bytes_per_s, std::nullopt);
  EXPECT_EQ(hardware_.gpu_note, "");
}

int nvml_sessions = 0;

NvmlFunctions nvml_functions() {
  NvmlFunctions functions;
  functions.Init_v2 = [] {
    ++nvml_sessions;
    return kNvmlSuccess;
  };
  functions.Shutdown = [] {
    --nvml_sessions;
    return kNvmlSuccess;
  };
  functions.SystemGetDriverVersion = [](char* version, unsigned size_bytes) {
    std::strncpy(version, "570.86.15", size_bytes);
    return kNvmlSuccess;
  };
  functions.DeviceGetHandleByUUID = [](const char* uuid, NvmlDevice* device) {
    *device = nullptr;
    return std::string(uuid) == "GPU-1" ? kNvmlSuccess : 6;
  };
  functions.DeviceGetCurrPcieLinkGeneration = [](NvmlDevice, unsigned* value) {
    *value = 1;
    return kNvmlSuccess;
  };
  functions.DeviceGetCurrPcieLinkWidth = [](NvmlDevice, unsigned* value) {
    *value = 8;
    return kNvmlSuccess;
  };
  functions.DeviceGetMaxPcieLinkGeneration = [](NvmlDevice, unsigned* value) {
    *value = 4;
    return kNvmlSuccess;
  };
  functions.DeviceGetMaxPcieLinkWidth = [](NvmlDevice, unsigned* value) {
    *value = 99;
    return 3;  // Not supported.
  };
  return functions;
}

TEST(ReadGpuLinks, FillsWhatTheLibraryKnows) {
  plan::Hardware hardware;
  hardware.gpus.push_back({.name = "First", .uuid = "GPU-1"});
  hardware.gpus.push_back({.name = "Other", .uuid = "GPU-2"});
  {
    const Result<Nvml> nvml = Nvml::from_functions(nvml_functions());
    EXPECT_EQ(nvml_sessions, 1);
    read_gpu_links(nvml, hardware);
  }
  EXPECT_EQ(nvml_sessions, 0) << "shut down with its last copy";
  EXPECT_EQ(hardware.gpus[0].driver, "570.86.15");
  EXPECT_EQ(hardware.gpus[0].link, (plan::PcieLink{.generation = 1, .width = 8}));
  EXPECT_EQ(hardware.gpus[0].link_max, (plan::PcieLink{.generation = 4, .width = 0}));
  EXPECT_EQ(hardware.gpus[1].driver, "570.86.15");
  EXPECT_EQ(hardware.gpus[1].link, plan::PcieLink());
}

TEST(LoadNvml, WhatIsNotThereOrNoNvml) {
  EXPECT_EQ(Nvml::load("libnvidia-that-is-not-there.so.1").error().code(), ErrorCode::kDevice);
  EXPECT_THAT(Nvml::load("libc.so.6").error().message(), HasSubstr("lacks"));
  NvmlFunctions broken = nvml_functions();
  broken.Init_v2 = [] { return 9; };
  EXPECT_EQ(Nvml::from_functions(broken).error().message(), "NVML does not start (9)");
  plan::Hardware hardware;
  hardware.gpus.push_back({.name = "First", .uuid = "GPU-1"});
  read_gpu_links(Nvml::load("libnvidia-that-is-not-there.so.1"), hardware);
  EXPECT_EQ(hardware.gpus[0].driver, "");
}

}  // namespace
}  // namespace trash_panda::runtime::cuda
