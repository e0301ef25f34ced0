// A streamer's blocks on a GPU: copied ahead of their use, lent, and given up.

#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"

#include "chunk_table.h"
#include "stream_core.h"

namespace trash_panda::runtime {

/// Whether a block comes in through a slot of host memory; else it has memory of its own there.
bool StreamCore::waits_in_slot(const Block& block) const {
  return block.tier != format::Tier::kRam;
}

/// Starts reads and copies of what is needed next, as far as slots, places and limits allow. Copies
/// in order only: a later block must not take the place that an earlier one needs.
void StreamCore::copy_ahead() {
  if (!on_device_ || !reader_ || blocks_.empty()) {
    return;
  }
  // An error shows again where the copy is needed.
  static_cast<void>(on_device_->poll());
  bool may_read = true;
  bool may_copy = true;
  std::uint64_t on_its_way_bytes = 0;
  // The block that was asked for last comes first while it is waited for, and last afterwards.
  const Block& asked = blocks_[position_];
  const std::size_t first = asked.lease_count > 0 && !asked.place ? 0 : 1;
  for (std::size_t step = first; step < blocks_.size() + first; ++step) {
    Block& block = blocks_[(position_ + step) % blocks_.size()];
    if (block.place) {
      continue;
    }
    may_read = may_read && start_read_ahead(block, on_its_way_bytes);
    may_copy = may_copy && start_copy_ahead(block);
    if (!may_read && !may_copy) {
      return;
    }
  }
}

/// @param on_its_way_bytes  Of RAM blocks that are being read; this one is added.
/// @return Whether the block is in host memory or on its way there.
bool StreamCore::start_read_ahead(Block& block, std::uint64_t& on_its_way_bytes) {
  if (!waits_in_slot(block)) {
    if (block.read && block.read->is_done()) {
      return true;
    }
    const std::uint64_t stored_bytes = block.extent->stored_bytes;
    if (!block.read && on_its_way_bytes > 0 && on_its_way_bytes + stored_bytes > window_bytes_) {
      return false;
    }
    on_its_way_bytes += stored_bytes;
  } else if (!block.read) {
    block.slot = slots_.take();
    if (!block.slot) {
      // After a jump, slots may hold blocks that are needed later than this one.
      const std::optional<std::size_t> victim = farthest_in_slot(/*only_done=*/true);
      const auto at = static_cast<std::size_t>(&block - blocks_.data());
      if (!victim || distance(*victim) <= distance(at)) {
        return false;
      }
      forget(blocks_[*victim]);
      block.slot = slots_.take();
    }
  }
  if (!block.read) {
    start_read(block);
  }
  return true;
}

/// @return Whether the block is on its way to the device.
bool StreamCore::start_copy_ahead(Block& block) {
  if (!block.read || !block.read->is_done() || !block.read->wait()) {
    return false;
  }
  if (options_.verify == VerifyMode::kFull && !block.is_used) {
    return false;  // It is checked by who asks for it.
  }
  if (!on_device_->has_room(block.extent->stored_bytes)) {
    return false;
  }
  std::optional<DeviceBlocks::Place> place =
      block.resident ? block.resident : on_device_->take_slot();
  if (!place) {
    const std::optional<std::size_t> victim = farthest_on_device();
    const auto at = static_cast<std::size_t>(&block - blocks_.data());
    if (!victim || distance(*victim) <= distance(at)) {
      return false;
    }
    give_up_place(blocks_[*victim]);
    place = on_device_->take_slot();
  }
  return copy_to_device(block, *place);
}

/// Of the streamed blocks on the device that nobody holds, the one that is needed last.
std::optional<std::size_t> StreamCore::farthest_on_device() const {
  std::optional<std::size_t> farthest;
  for (std::size_t at = 0; at < blocks_.size(); ++at) {
    const Block& block = blocks_[at];
    if (block.place && block.place != block.resident && block.lease_count == 0 &&
        (!farthest || distance(at) > distance(*farthest))) {
      farthest = at;
    }
  }
  return farthest;
}

/// Gives a streamed block's place to whoever needs one next; the device keeps the order.
void StreamCore::give_up_place(Block& block) {
  on_device_->give_back_slot(*std::exchange(block.place, std::nullopt));
}

/// Queues the copy of a block that has been read. Its slot of host memory is the copy's from now
/// on.
bool StreamCore::copy_to_device(Block& block, DeviceBlocks::Place place) {
  const std::span<const std::byte> source = stored_bytes(block);
  Result<std::vector<std::uint32_t>> chunks = make_chunk_table(block.layout, source);
  if (!chunks) {
    block.copy_error = std::move(chunks).error();
    if (place != block.resident) {
      on_device_->give_back_slot(place);
    }
    return false;
  }
  block.read_times = block.read->times();
  block.copy_times = recorder_ ? std::make_shared<CopyTimes>(RunClock::now()) : nullptr;
  std::function<void()> on_done;
  if (waits_in_slot(block)) {
    on_done = [this, &block, slot = *block.slot, times = block.copy_times] {
      slots_.give_back(slot);
      note_copied(block, times.get());
    };
    block.slot.reset();
    block.read.reset();
  } else {
    block.pin.begin_use();
    ++block.home_copy_count;
    on_done = [this, &block, times = block.copy_times] {
      --block.home_copy_count;
      block.pin.end_use();
      note_copied(block, times.get());
    };
  }
  Result<void> queued = on_device_->fill(place, source, block.layout, *chunks, std::move(on_done));
  block.place = place;
  settle(block);
  if (!queued) {
    leave_device(block);
    block.place.reset();
    block.copy_error = std::move(queued).error();
    return false;
  }
  return true;
}

/// A slot of host memory for a block that is waited for.
Result<std::size_t> StreamCore::take_host_slot(const Block& block) {
  std::optional<std::size_t> slot = slots_.take();
  while (!slot && on_device_->next_copy()) {
    TP_RETURN_IF_ERROR(on_device_->wait_for_copy());
    slot = slots_.take();
  }
  if (!slot) {
    const std::optional<std::size_t> victim = farthest_in_slot(/*only_done=*/false);
    if (!victim) {
      return std::unexpected(
          Error(ErrorCode::kFailed, fmt::format("no host memory is left to read block \"{}\" into",
                                                printable(block.extent->name))));
    }
    // How that read went does not matter: the block is read again when it is needed.
    static_cast<void>(blocks_[*victim].read->wait());
    forget(blocks_[*victim]);
    slot = slots_.take();
  }
  return *slot;
}

/// Queues the copy of a block that is waited for, at the cost of what was copied ahead.
Result<void> StreamCore::copy_now(Block& block) {
  while (!on_device_->has_room(block.extent->stored_bytes)) {
    TP_RETURN_IF_ERROR(on_device_->wait_for_copy());
  }
  std::optional<DeviceBlocks::Place> place =
      block.resident ? block.resident : on_device_->take_slot();
  if (!place) {
    const std::optional<std::size_t> victim = farthest_on_device();
    if (!victim) {
      return std::unexpected(
          Error(ErrorCode::kUsage,
                fmt::format("block \"{}\" can't be acquired: all slots of the device are held",
                            printable(block.extent->name)))
              .with_hint("release a lease first, or ask for more device slots"));
    }
    give_up_place(blocks_[*victim]);
    place = on_device_->take_slot();
  }
  return copy_to_device(block, *place) ? Result<void>() : std::unexpected(*block.copy_error);
}

/// Waits until a block is on its way to the device.
Result<void> StreamCore::bring_to_device(Block& block, std::unique_lock<std::mutex>& lock,
                                         ReadyTimes& times) {
  block.copy_error.reset();
  if (!block.place && !block.read) {
    TP_RETURN_IF_ERROR(start_needed(block));
  }
  prefetch();
  if (!block.place && block.read) {
    // Waiting must not keep leases from ending on other threads.
    const std::shared_ptr<ExtentRead> read = block.read;
    lock.unlock();
    Result<void> done = read->wait();
    lock.lock();
    if (!done) {
      return std::unexpected(std::move(done).error().with_context(
          fmt::format("loading extent \"{}\"", printable(block.extent->name))));
    }
  }
  times.read = RunClock::now();
  if (block.place) {
    return {};
  }
  if (block.copy_error) {
    return std::unexpected(*block.copy_error);
  }
  if (options_.verify == VerifyMode::kFull && !block.is_used) {
    TP_RETURN_IF_ERROR(check_extent(*block.extent, stored_bytes(block)));
  }
  TP_RETURN_IF_ERROR(copy_now(block));
  times.queued = RunClock::now();
  return {};
}

Result<void> StreamCore::make_on_device(Block& block, StreamHandle stream) {
  TP_RETURN_IF_ERROR(on_device_->begin_use(*block.place, stream));
  Result<std::vector<TensorView>> tensors =
      on_device_->make(block.layout, *block.place, block.compute, stream);
  if (!tensors) {
    return std::unexpected(std::move(tensors).error().with_context(
        fmt::format("extent \"{}\"", printable(block.extent->name))));
  }
  block.tensors = *std::move(tensors);
  return {};
}

Result<void> StreamCore::acquire_on_device(std::size_t block_index, StreamHandle stream,
                                           std::unique_lock<std::mutex>& lock, ReadyTimes& times) {
  Block& block = blocks_[block_index];
  if (block.layout.compute_bytes > 0) {
    TP_ASSIGN_OR_RETURN(block.compute, on_device_->take_compute());
  }
  block.lease_count = 1;
  block.stream = stream;
  times.read = times.asked;
  Result<void> ready = bring_to_device(block, lock, times);
  if (ready) {
    ready = make_on_device(block, stream);
  }
  times.made = RunClock::now();
  stats_.wait_ns += static_cast<std::uint64_t>((times.read - times.asked).count());
  if (!ready) {
    // Nothing is kept: the next acquire() begins anew.
    end_use_on_device(block, stream);
    let_go(block);
    leave_device(block);
    if (block.read) {
      forget(block);
    }
    return ready;
  }
  const bool is_first_use = !block.is_used;
  note_acquire(block_index, times.asked);
  note_ready(block, times, is_first_use);
  prefetch();
  return {};
}

/// Lets another lease use a block that is held.
Result<void> StreamCore::share(Block& block, StreamHandle stream) {
  if (stream == block.stream) {
    return {};
  }
  TP_RETURN_IF_ERROR(on_device_->begin_use(*block.place, stream));
  return block.compute ? on_device_->follow(*block.compute, block.stream, stream) : Result<void>();
}

/// What was queued on the stream until now was the use of a block.
void StreamCore::end_use_on_device(Block& block, StreamHandle stream) {
  if (block.place) {
    on_device_->end_use(*block.place, stream);
  }
  if (block.compute) {
    on_device_->end_use(*block.compute, stream);
  }
}

/// Gives up the place of a block that streams.
void StreamCore::leave_device(Block& block) {
  if (block.place && block.place != block.resident) {
    give_up_place(block);
  }
}

void StreamCore::use_pins() {
  if (on_device_ && !std::exchange(are_pins_used_, true)) {
    for (Block& block : blocks_) {
      block.pin.begin_use();
    }
  }
}

void StreamCore::rest_pins() {
  if (std::exchange(are_pins_used_, false)) {
    for (Block& block : blocks_) {
      block.pin.end_use();
    }
  }
}

void StreamCore::note_work() {
  const std::lock_guard lock(work_mutex_);
  has_work_ = true;
  work_.notify_one();
}

/// Copies ahead while the user computes: whenever a read or a copy is done.
void StreamCore::copy_in_background(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::optional<DeviceEvent> next;
    {
      const std::lock_guard lock(mutex_);
      copy_ahead();
      next = on_device_->next_copy();
    }
    if (next && device_->synchronize(*next)) {
      continue;
    }
    std::unique_lock lock(work_mutex_);
    work_.wait(lock, stop, [this] { return has_work_; });
    has_work_ = false;
  }
}

}  // namespace trash_panda::runtime
