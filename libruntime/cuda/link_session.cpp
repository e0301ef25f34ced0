#include "cuda/link_session.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

#include "cuda/gpu_probe.h"

namespace trash_panda::runtime::cuda {

namespace {

using LinkClock = std::chrono::steady_clock;

/// One copy: as large as a block's extent, so that the start of a copy does not count.
constexpr std::uint64_t kLinkCopyBytes = 64 * kMiB;
/// Two that are pinned and one that is not.
constexpr std::uint64_t kHostBuffers = 3;

}  // namespace

LinkSession::~LinkSession() {
  const Functions& cuda = driver_.functions();
  for (const Stream stream : {to_stream_, from_stream_}) {
    if (stream != nullptr) {
      static_cast<void>(cuda.StreamSynchronize(stream));
      static_cast<void>(cuda.StreamDestroy_v2(stream));
    }
  }
  for (void* memory : {to_pinned_, from_pinned_}) {
    if (memory != nullptr) {
      static_cast<void>(cuda.MemFreeHost(memory));
    }
  }
  for (const DeviceAddress address : {to_device_, from_device_}) {
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

Result<void> LinkSession::check(Status status, const char* what) const {
  if (status == kSuccess) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kDevice, fmt::format("{}: {}", what, driver_.describe(status))));
}

/// The driver's device with a UUID: a selection of GPUs has lost its numbers.
Result<Device> LinkSession::find_gpu(const std::string& uuid) const {
  const Functions& cuda = driver_.functions();
  int count = 0;
  TP_RETURN_IF_ERROR(check(cuda.DeviceGetCount(&count), "counting GPUs"));
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

Result<void> LinkSession::open(const std::string& uuid, std::uint64_t memory_bytes_max) {
  const Functions& cuda = driver_.functions();
  copy_bytes_ = std::min(kLinkCopyBytes, memory_bytes_max / kHostBuffers / kMiB * kMiB);
  TP_ASSIGN_OR_RETURN(device_, find_gpu(uuid));
  Context context = nullptr;
  TP_RETURN_IF_ERROR(check(cuda.DevicePrimaryCtxRetain(&context, device_), "context"));
  is_retained_ = true;
  TP_RETURN_IF_ERROR(check(cuda.CtxPushCurrent_v2(context), "context"));
  is_current_ = true;
  for (DeviceAddress* address : {&to_device_, &from_device_}) {
    TP_RETURN_IF_ERROR(check(cuda.MemAlloc_v2(address, copy_bytes_), "memory of the GPU"));
  }
  for (void** memory : {&to_pinned_, &from_pinned_}) {
    TP_RETURN_IF_ERROR(check(cuda.MemHostAlloc(memory, copy_bytes_, 0), "pinned memory"));
    std::memset(*memory, 1, copy_bytes_);
  }
  for (Stream* stream : {&to_stream_, &from_stream_}) {
    TP_RETURN_IF_ERROR(check(cuda.StreamCreate(stream, kStreamNonBlocking), "stream"));
  }
  TP_ASSIGN_OR_RETURN(pageable_, AlignedBuffer::create(copy_bytes_));
  std::memset(pageable_.data(), 1, copy_bytes_);
  return {};
}

Status LinkSession::queue(LinkCopy copy) const {
  const Functions& cuda = driver_.functions();
  const auto to = [&](const void* source) {
    return cuda.MemcpyHtoDAsync_v2(to_device_, source, copy_bytes_, to_stream_);
  };
  const auto from = [&](void* target) {
    return cuda.MemcpyDtoHAsync_v2(target, from_device_, copy_bytes_, from_stream_);
  };
  switch (copy) {
    case LinkCopy::kToPinned:
      return to(to_pinned_);
    case LinkCopy::kToPageable:
      return to(pageable_.data());
    case LinkCopy::kFromPinned:
      return from(from_pinned_);
    case LinkCopy::kFromPageable:
      return from(pageable_.data());
    case LinkCopy::kToDuplex:
      // Two the other way for each, so that they are still under way when the last one arrives.
      for (int beside = 0; beside < 2; ++beside) {
        if (const Status status = from(from_pinned_); status != kSuccess) {
          return status;
        }
      }
      return to(to_pinned_);
  }
  return kSuccess;
}

/// Seconds that `count` copies take, queued at once.
Result<double> LinkSession::seconds(LinkCopy copy, std::uint64_t count) {
  const Functions& cuda = driver_.functions();
  const bool is_from = copy == LinkCopy::kFromPinned || copy == LinkCopy::kFromPageable;
  const auto start = LinkClock::now();
  for (std::uint64_t index = 0; index < count; ++index) {
    TP_RETURN_IF_ERROR(check(queue(copy), "copy"));
  }
  TP_RETURN_IF_ERROR(check(cuda.StreamSynchronize(is_from ? from_stream_ : to_stream_), "copy"));
  const Seconds elapsed = LinkClock::now() - start;
  // What ran beside is no part of the measurement, nor may it be one of the next.
  for (const Stream other : {to_stream_, from_stream_}) {
    TP_RETURN_IF_ERROR(check(cuda.StreamSynchronize(other), "copy"));
  }
  return std::max(elapsed.count(), 1e-9);
}

Result<std::uint64_t> LinkSession::count_for(LinkCopy copy, Seconds duration) {
  // The first copies wake the link up; how long they take says how many make a measurement.
  constexpr std::uint64_t kWakingCopies = 4;
  TP_ASSIGN_OR_RETURN(const double waking_s, seconds(copy, kWakingCopies));
  const double one_copy_s = waking_s / static_cast<double>(kWakingCopies);
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(duration.count() / one_copy_s), 2,
                                   256);
}

Result<double> LinkSession::rate(LinkCopy copy, std::uint64_t count) {
  TP_ASSIGN_OR_RETURN(const double taken_s, seconds(copy, count));
  return static_cast<double>(count * copy_bytes_) / taken_s;
}

}  // namespace trash_panda::runtime::cuda
