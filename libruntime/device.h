#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/runtime/device.h"
#include "trash_panda/runtime/streamer.h"

#include "tensor_layout.h"

namespace trash_panda::runtime {

class PinLedger;

/// Memory of a device, given back with the last copy of `owner`: by then nothing that was queued
/// may use it any more.
struct DeviceMemory {
  std::span<std::byte> bytes;  ///< Addresses of the device; not ours to read, unless it is the CPU.
  std::shared_ptr<void> owner;
};

/// Of a device, whoever takes the rest.
struct DeviceMemoryLeft {
  std::uint64_t free_bytes;
  std::uint64_t total_bytes;
};

/// A point in a stream that others can wait for: what was queued before it was recorded. One that
/// was never recorded has passed.
using DeviceEvent = std::shared_ptr<void>;

/// A device's memory, the copies to it and the order among them. Work on a stream is done in the
/// order in which it was queued; between streams only events order.
///
/// Thread-safe. Calls queue and return; only those that say so wait.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// For people: "NVIDIA H200, asynchronous copies".
  [[nodiscard]] virtual std::string description() const = 0;
  /// Whether it computes in host memory, so that extents are used where they were read.
  [[nodiscard]] virtual bool is_host() const = 0;
  /// @see runtime::cuda_ordinal()
  [[nodiscard]] virtual std::optional<int> cuda_ordinal() const = 0;
  /// Pins of host memory, so that copies run beside everything else; null: nothing is pinned.
  [[nodiscard]] virtual PinLedger* pins() = 0;

  /// @retval kDoesNotFit  There is not as much memory left.
  /// @retval kDevice      The driver refused for another reason; as of all calls below.
  virtual Result<DeviceMemory> allocate(std::uint64_t size_bytes) = 0;
  [[nodiscard]] virtual Result<DeviceMemoryLeft> memory_left() = 0;
  virtual Result<DeviceEvent> make_event() = 0;
  /// The stream that copy() queues on.
  [[nodiscard]] virtual StreamHandle copy_stream() const = 0;
  /// Queues a copy from host memory.
  ///
  /// @param source  As long as `target`. If pinned: left alone until an event behind the copy has
  ///                passed. If not: the call waits until it has been taken.
  virtual Result<void> copy(std::span<std::byte> target, std::span<const std::byte> source) = 0;
  virtual Result<void> record(const DeviceEvent& event, StreamHandle stream) = 0;
  /// Lets what is queued on `stream` from now on wait for the event.
  virtual Result<void> wait(StreamHandle stream, const DeviceEvent& event) = 0;
  [[nodiscard]] virtual Result<bool> has_passed(const DeviceEvent& event) = 0;
  /// Waits, on the CPU, for the event.
  virtual Result<void> synchronize(const DeviceEvent& event) = 0;
  /// Waits, on the CPU, for all that was queued on the stream.
  virtual Result<void> synchronize(StreamHandle stream) = 0;
  /// Queues the making of an extent's tensors.
  ///
  /// @param stored   The extent's bytes on the device; tensors in place point into it.
  /// @param compute  At least layout.compute_bytes, on a multiple of format::kTensorAlignment.
  /// @return Views in the order of the layout, valid as long as both memories are left alone.
  /// @retval kCorrupt      The code of a tensor is damaged.
  /// @retval kUnsupported  A tensor's code can't be decoded by this device.
  [[nodiscard]] virtual Result<std::vector<TensorView>> place(const TensorLayout& layout,
                                                              std::span<std::byte> stored,
                                                              std::span<std::byte> compute,
                                                              StreamHandle stream) = 0;

  /// Whether all codes that were decoded until now were sound.
  ///
  /// @retval kCorrupt  One was not; place() says the same from then on.
  [[nodiscard]] virtual Result<void> check_decoded() const = 0;

  /// Registers exactly this range of host memory. Through pins() only, which keeps the books.
  virtual Result<void> pin(std::span<std::byte> memory) = 0;
  virtual Result<void> unpin(std::span<std::byte> memory) = 0;
};

}  // namespace trash_panda::runtime
