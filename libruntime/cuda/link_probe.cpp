#include "cuda/link_probe.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/units.h"

#include "cuda/gpu_probe.h"
#include "probe/median.h"

namespace trash_panda::runtime::cuda {

namespace {

using LinkClock = std::chrono::steady_clock;

/// One copy: as large as a block's extent, so that the start of a copy does not count.
constexpr std::uint64_t kLinkCopyBytes = 64 * kMiB;

Result<void> check_link(const Driver& driver, Status status, const char* what) {
  if (status == kSuccess) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kDevice, fmt::format("{}: {}", what, driver.describe(status))));
}

/// Everything that the copies of one GPU need, given back in reverse order.
class LinkSession {
 public:
  explicit LinkSession(const Driver& driver) : driver_(driver) {}
  LinkSession(const LinkSession&) = delete;
  LinkSession& operator=(const LinkSession&) = delete;

  ~LinkSession() {
    const Functions& cuda = driver_.functions();
    for (const Stream stream : {to_stream, from_stream}) {
      if (stream != nullptr) {
        static_cast<void>(cuda.StreamSynchronize(stream));
        static_cast<void>(cuda.StreamDestroy_v2(stream));
      }
    }
    for (void* memory : {to_pinned, from_pinned}) {
      if (memory != nullptr) {
        static_cast<void>(cuda.MemFreeHost(memory));
      }
    }
    for (const DeviceAddress address : {to_device, from_device}) {
      if (address != 0) {
        static_cast<void>(cuda.MemFree_v2(address));
      }
    }
    if (is_current_) {
      Context popped = nullptr;
      static_cast<void>(cuda.CtxPopCurrent_v2(&popped));
    }
    if (is_retained_) {
      static_cast<void>(cuda.DevicePrimaryCtxRelease_v2(device_));
    }
  }

  Result<void> open(Device device, std::uint64_t copy_bytes) {
    const Functions& cuda = driver_.functions();
    device_ = device;
    Context context = nullptr;
    TP_RETURN_IF_ERROR(
        check_link(driver_, cuda.DevicePrimaryCtxRetain(&context, device), "context"));
    is_retained_ = true;
    TP_RETURN_IF_ERROR(check_link(driver_, cuda.CtxPushCurrent_v2(context), "context"));
    is_current_ = true;
    for (DeviceAddress* address : {&to_device, &from_device}) {
      TP_RETURN_IF_ERROR(
          check_link(driver_, cuda.MemAlloc_v2(address, copy_bytes), "memory of the GPU"));
    }
    for (void** memory : {&to_pinned, &from_pinned}) {
      TP_RETURN_IF_ERROR(
          check_link(driver_, cuda.MemHostAlloc(memory, copy_bytes, 0), "pinned memory"));
      std::memset(*memory, 1, copy_bytes);
    }
    for (Stream* stream : {&to_stream, &from_stream}) {
      TP_RETURN_IF_ERROR(
          check_link(driver_, cuda.StreamCreate(stream, kStreamNonBlocking), "stream"));
    }
    TP_ASSIGN_OR_RETURN(pageable, AlignedBuffer::create(copy_bytes));
    std::memset(pageable.data(), 1, copy_bytes);
    return {};
  }

  DeviceAddress to_device = 0;
  DeviceAddress from_device = 0;
  void* to_pinned = nullptr;
  void* from_pinned = nullptr;
  Stream to_stream = nullptr;
  Stream from_stream = nullptr;
  AlignedBuffer pageable;

 private:
  const Driver& driver_;
  Device device_ = 0;
  bool is_retained_ = false;
  bool is_current_ = false;
};

/// The measurements of one GPU.
class LinkMeasurement {
 public:
  LinkMeasurement(const Driver& driver, LinkSession& session, const EffortPlan& effort,
                  std::uint64_t copy_bytes, StopFlag stop)
      : driver_(driver),
        cuda_(driver.functions()),
        session_(session),
        effort_(effort),
        copy_bytes_(copy_bytes),
        stop_(stop) {}

  Result<void> run(plan::GpuInfo& gpu) {
    const auto to = [&](const void* source) {
      return [this, source] {
        return cuda_.MemcpyHtoDAsync_v2(session_.to_device, source, copy_bytes_,
                                        session_.to_stream);
      };
    };
    const auto from = [&](void* target) {
      return [this, target] {
        return cuda_.MemcpyDtoHAsync_v2(target, session_.from_device, copy_bytes_,
                                        session_.from_stream);
      };
    };
    const auto none = [] { return kSuccess; };
    TP_ASSIGN_OR_RETURN(gpu.h2d_pinned_bytes_per_s,
                        rate(session_.to_stream, to(session_.to_pinned), none));
    TP_ASSIGN_OR_RETURN(gpu.h2d_pageable_bytes_per_s,
                        rate(session_.to_stream, to(session_.pageable.data()), none));
    TP_ASSIGN_OR_RETURN(gpu.d2h_pinned_bytes_per_s,
                        rate(session_.from_stream, from(session_.from_pinned), none));
    TP_ASSIGN_OR_RETURN(gpu.d2h_pageable_bytes_per_s,
                        rate(session_.from_stream, from(session_.pageable.data()), none));
    // Two the other way for each, so that they are still under way when the last one arrives.
    const auto from_twice = [&] {
      const Status first = from(session_.from_pinned)();
      return first == kSuccess ? from(session_.from_pinned)() : first;
    };
    TP_ASSIGN_OR_RETURN(gpu.h2d_duplex_bytes_per_s,
                        rate(session_.to_stream, to(session_.to_pinned), from_twice));
    return {};
  }

 private:
  /// Seconds that `count` copies take, queued at once, with others queued beside each.
  Result<double> batch_seconds(Stream stream, std::uint64_t count, const auto& copy,
                               const auto& beside) {
    const auto start = LinkClock::now();
    for (std::uint64_t index = 0; index < count; ++index) {
      TP_RETURN_IF_ERROR(check_link(driver_, beside(), "copy"));
      TP_RETURN_IF_ERROR(check_link(driver_, copy(), "copy"));
    }
    TP_RETURN_IF_ERROR(check_link(driver_, cuda_.StreamSynchronize(stream), "copy"));
    const Seconds elapsed = LinkClock::now() - start;
    // What ran beside is no part of the measurement, nor may it be one of the next.
    for (const Stream other : {session_.to_stream, session_.from_stream}) {
      TP_RETURN_IF_ERROR(check_link(driver_, cuda_.StreamSynchronize(other), "copy"));
    }
    return std::max(elapsed.count(), 1e-9);
  }

  Result<std::optional<std::uint64_t>> rate(Stream stream, const auto& copy, const auto& beside) {
    // The first copies wake the link up; how long they take says how many make a measurement.
    constexpr std::uint64_t kWakingCopies = 4;
    TP_ASSIGN_OR_RETURN(const double waking, batch_seconds(stream, kWakingCopies, copy, beside));
    const double one_copy = waking / static_cast<double>(kWakingCopies);
    const std::uint64_t count = std::clamp<std::uint64_t>(
        static_cast<std::uint64_t>(effort_.memory.count() / one_copy), 2, 256);
    std::vector<double> rates;
    for (std::uint32_t round = 0; round < effort_.memory_rounds; ++round) {
      if (stop_ != nullptr && *stop_) {
        return std::nullopt;
      }
      TP_ASSIGN_OR_RETURN(const double seconds, batch_seconds(stream, count, copy, beside));
      rates.push_back(static_cast<double>(count * copy_bytes_) / seconds);
    }
    return static_cast<std::uint64_t>(median(rates));
  }

  const Driver& driver_;
  const Functions& cuda_;
  LinkSession& session_;
  const EffortPlan& effort_;
  std::uint64_t copy_bytes_;
  StopFlag stop_;
};

/// The driver's device with a UUID: a selection of GPUs has lost its numbers.
Result<Device> find_gpu(const Driver& driver, const std::string& uuid) {
  const Functions& cuda = driver.functions();
  int count = 0;
  TP_RETURN_IF_ERROR(check_link(driver, cuda.DeviceGetCount(&count), "counting GPUs"));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Device device = 0;
    Uuid found = {};
    if (cuda.DeviceGet(&device, ordinal) == kSuccess &&
        cuda.DeviceGetUuid_v2(&found, device) == kSuccess && to_string(found) == uuid) {
      return device;
    }
  }
  return std::unexpected(Error(ErrorCode::kDevice, "the driver does not know it any more"));
}

Result<void> measure_gpu(const Driver& driver, const EffortPlan& effort, std::uint64_t copy_bytes,
                         StopFlag stop, plan::GpuInfo& gpu) {
  TP_ASSIGN_OR_RETURN(const Device device, find_gpu(driver, gpu.uuid));
  LinkSession session(driver);
  TP_RETURN_IF_ERROR(session.open(device, copy_bytes));
  return LinkMeasurement(driver, session, effort, copy_bytes, stop).run(gpu);
}

}  // namespace

void measure_links(const Driver& driver, const EffortPlan& effort, std::uint64_t memory_bytes_max,
                   StopFlag stop, plan::Hardware& hardware) {
  constexpr std::uint64_t kHostBuffers = 3;
  const std::uint64_t copy_bytes =
      std::min(kLinkCopyBytes, memory_bytes_max / kHostBuffers / kMiB * kMiB);
  for (plan::GpuInfo& gpu : hardware.gpus) {
    const Result<void> measured = measure_gpu(driver, effort, copy_bytes, stop, gpu);
    if (!measured) {
      hardware.gpu_note +=
          fmt::format("{}{} not measured: {}", hardware.gpu_note.empty() ? "" : "; ", gpu.name,
                      measured.error().message());
    }
  }
}

}  // namespace trash_panda::runtime::cuda
