#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"

#include "device.h"

namespace trash_panda::runtime {

/// The memory of a device that a streamer's blocks are copied to and made in, and the rules of its
/// reuse. Not thread-safe.
///
/// A *place* is a piece of that memory. It is filled by a copy on the copy stream or by a kernel on
/// the user's, and used on the user's stream. Each of these waits, on the device, for the one
/// before: a use for what filled the place, a copy for the last use. So the CPU waits for nothing
/// and queues ahead, as far as places and the limit of bytes in flight allow.
class DeviceBlocks {
 public:
  using Place = std::size_t;

  struct Needs {
    std::size_t slot_count = 0;  ///< Places that blocks stream through.
    std::uint64_t slot_bytes = 0;
    /// Of a buffer for tensors that are not used as they are stored; 0: there are none.
    std::uint64_t compute_bytes = 0;
    std::size_t compute_count_max = 0;
    /// Copies that are queued at one time, in bytes, but always one.
    std::uint64_t in_flight_bytes_max = 0;
  };

  /// Takes the memory of the slots and of one compute buffer.
  /// @retval kDoesNotFit  The device has not as much left.
  static Result<std::unique_ptr<DeviceBlocks>> create(std::shared_ptr<Device> device,
                                                      const Needs& needs);
  DeviceBlocks(std::shared_ptr<Device> device, const Needs& needs)
      : device_(std::move(device)), needs_(needs) {}
  DeviceBlocks(const DeviceBlocks&) = delete;
  DeviceBlocks& operator=(const DeviceBlocks&) = delete;
  /// Waits for all that may still use the memory.
  ~DeviceBlocks();

  /// A place of its own for a block that stays.
  /// @retval kDoesNotFit  The device has not as much left.
  Result<Place> add_resident(std::uint64_t size_bytes);
  /// Waits for all that may still use such a place, and gives its memory back.
  /// @retval kDevice  It could not be waited for: the memory stays.
  Result<void> remove_resident(Place place);
  /// The slot that was given back longest ago: its last use is the likeliest to be over, and with
  /// as many slots as divide the blocks each block has the same address in every pass.
  [[nodiscard]] std::optional<Place> take_slot();
  void give_back_slot(Place slot) { free_slots_.push_back(slot); }
  /// A compute buffer; one more is made when all are in use.
  /// @retval kUsage       As many as may be are in use.
  /// @retval kDoesNotFit  The device has no memory for one more.
  Result<Place> take_compute();
  void give_back_compute(Place compute) { free_compute_.push_back(compute); }
  [[nodiscard]] std::span<std::byte> bytes(Place place) const {
    return places_[place].memory.bytes;
  }
  [[nodiscard]] std::uint64_t size_bytes() const;

  /// Whether another copy may be queued now.
  [[nodiscard]] bool has_room(std::uint64_t size_bytes) const;
  /// Queues a copy to a place, after its last use.
  ///
  /// @param chunks   The extent's chunk table, which goes to its place in the layout; may be empty.
  /// @param on_done  Called once, when the source is not needed any more: by poll(), by this call
  ///                 if the copy failed or was waited for, or by the destructor.
  Result<void> fill(Place place, std::span<const std::byte> source, const TensorLayout& layout,
                    std::span<const std::uint32_t> chunks, std::function<void()> on_done);
  /// Queues the making of tensors in a compute buffer, after its last use.
  Result<std::vector<TensorView>> make(const TensorLayout& layout, Place stored,
                                       std::optional<Place> compute, StreamHandle stream);
  /// What is queued on the stream from now on finds the place filled.
  Result<void> begin_use(Place place, StreamHandle stream);
  /// What was queued on the stream until now was the use of the place.
  void end_use(Place place, StreamHandle stream);

  /// What is queued on `to` from now on comes after what is queued on `from` now; for a second use
  /// beside the first.
  Result<void> follow(Place place, StreamHandle from, StreamHandle to);

  /// Waits, on the CPU, for all that ended uses have queued.
  Result<void> wait_for_uses();

  /// Lets go of the sources of copies that are done.
  Result<void> poll();
  /// The event of the copy that will be done next, if any is under way.
  [[nodiscard]] std::optional<DeviceEvent> next_copy() const;
  /// Waits, on the CPU, for that copy, and lets go of its source.
  Result<void> wait_for_copy();

 private:
  struct Memory {
    DeviceMemory memory;
    DeviceEvent filled;  ///< Null: what fills it is not waited for.
    DeviceEvent used;
    bool was_used = false;  ///< Since it was filled.
  };
  struct Copy {
    DeviceEvent done;
    std::uint64_t size_bytes;
    std::function<void()> on_done;
  };

  Result<Place> add(std::uint64_t size_bytes);
  Result<void> wait_for_use(Memory& memory, StreamHandle stream);
  Result<DeviceEvent> queue_copy(Memory& memory, std::span<const std::byte> source,
                                 const TensorLayout& layout, std::span<const std::uint32_t> chunks);

  const std::shared_ptr<Device> device_;
  const Needs needs_;
  std::vector<Memory> places_;
  std::deque<Place> free_slots_;
  std::vector<Place> free_compute_;
  std::size_t compute_count_ = 0;
  std::deque<Copy> copies_;  ///< Under way, in the order in which they will be done.
  std::uint64_t in_flight_bytes_ = 0;
};

}  // namespace trash_panda::runtime
