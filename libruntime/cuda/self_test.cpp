#include "cuda/self_test.h"

#include <cstddef>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "trash_panda/base/aligned_buffer.h"

namespace trash_panda::runtime::cuda {

namespace {

/// No multiple of a page: the two ranges meet within one.
constexpr std::size_t kRangeBytes = 49'000;

/// Memory that the driver still holds pinned: freed, its pages would be given to someone else while
/// the driver may write to them.
void keep_test_memory(AlignedBuffer memory) {
  static std::mutex mutex;
  static std::vector<AlignedBuffer> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

/// Everything that the test takes, given back whatever its result.
class TestMemory {
 public:
  TestMemory(const PrimaryContext& context, Stream copy_stream)
      : context_(context), copy_stream_(copy_stream) {}
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;
  ~TestMemory() { static_cast<void>(close()); }

  Result<void> open() {
    TP_ASSIGN_OR_RETURN(host_, AlignedBuffer::create(2 * kRangeBytes));
    back = host_.span().first(kRangeBytes);
    source = host_.span().subspan(kRangeBytes, kRangeBytes);
    TP_RETURN_IF_ERROR(pin(back));
    TP_RETURN_IF_ERROR(pin(source));
    TP_RETURN_IF_ERROR(context_.check("allocating", &Functions::MemAlloc_v2, &device, kRangeBytes));
    TP_RETURN_IF_ERROR(context_.check("making a stream", &Functions::StreamCreate, &other_stream,
                                      kStreamNonBlocking));
    return context_.check("making an event", &Functions::EventCreate, &event, kEventDisableTiming);
  }

  /// Gives everything back. @retval kDevice  Memory stays pinned, and is kept for that.
  Result<void> close() {
    if (event != nullptr) {
      static_cast<void>(context_.call(&Functions::EventDestroy_v2, std::exchange(event, nullptr)));
    }
    // Both are idle, unless the test failed half-way.
    static_cast<void>(context_.call(&Functions::StreamSynchronize, copy_stream_));
    if (other_stream != nullptr) {
      static_cast<void>(context_.call(&Functions::StreamSynchronize, other_stream));
      static_cast<void>(
          context_.call(&Functions::StreamDestroy_v2, std::exchange(other_stream, nullptr)));
    }
    if (device != 0) {
      static_cast<void>(context_.call(&Functions::MemFree_v2, std::exchange(device, 0)));
    }
    Result<void> unpinned;
    for (std::byte* const memory : std::exchange(pinned_, {})) {
      Result<void> one = unpin(memory);
      if (!one) {
        one = unpin(memory);  // The error may have been of earlier work.
      }
      if (unpinned) {
        unpinned = std::move(one);
      }
    }
    if (!unpinned) {
      keep_test_memory(std::move(host_));
    }
    return unpinned;
  }

  std::span<std::byte> back;    ///< Where the copy back goes.
  std::span<std::byte> source;  ///< Right behind it.
  DeviceAddress device = 0;
  Stream other_stream = nullptr;
  Event event = nullptr;

 private:
  Result<void> pin(std::span<std::byte> memory) {
    TP_RETURN_IF_ERROR(context_.check("pinning host memory", &Functions::MemHostRegister_v2,
                                      static_cast<void*>(memory.data()), memory.size(),
                                      kHostRegisterPortable));
    pinned_.push_back(memory.data());
    return {};
  }

  Result<void> unpin(std::byte* memory) {
    return context_.check("unpinning host memory", &Functions::MemHostUnregister,
                          static_cast<void*>(memory));
  }

  const PrimaryContext& context_;
  const Stream copy_stream_;
  AlignedBuffer host_;
  std::vector<std::byte*> pinned_;
};

}  // namespace

Result<void> test_copies(const PrimaryContext& context, Stream copy_stream) {
  TestMemory memory(context, copy_stream);
  TP_RETURN_IF_ERROR(memory.open());
  for (std::size_t at = 0; at < kRangeBytes; ++at) {
    memory.source[at] = static_cast<std::byte>(at % 251 + 1);
  }
  // There on one stream, back on the other.
  TP_RETURN_IF_ERROR(context.check("copying to it", &Functions::MemcpyHtoDAsync_v2, memory.device,
                                   static_cast<const void*>(memory.source.data()), kRangeBytes,
                                   copy_stream));
  Result<void> queued =
      context.check("recording an event", &Functions::EventRecord, memory.event, copy_stream);
  if (queued) {
    queued = context.check("waiting for an event", &Functions::StreamWaitEvent, memory.other_stream,
                           memory.event, 0U);
  }
  if (queued) {
    queued = context.check("copying from it", &Functions::MemcpyDtoHAsync_v2,
                           static_cast<void*>(memory.back.data()), memory.device, kRangeBytes,
                           memory.other_stream);
  }
  // Nothing is given back before both streams are done, whatever happened.
  Result<void> done =
      context.check("waiting for a stream", &Functions::StreamSynchronize, memory.other_stream);
  const Result<void> copied =
      context.check("waiting for a stream", &Functions::StreamSynchronize, copy_stream);
  TP_RETURN_IF_ERROR(std::move(queued));
  TP_RETURN_IF_ERROR(std::move(done));
  TP_RETURN_IF_ERROR(copied);
  const bool is_same = std::memcmp(memory.back.data(), memory.source.data(), kRangeBytes) == 0;
  TP_RETURN_IF_ERROR(memory.close());
  if (!is_same) {
    return std::unexpected(
        Error(ErrorCode::kDevice, "a stream did not wait for the event of a copy on another"));
  }
  return {};
}

}  // namespace trash_panda::runtime::cuda
