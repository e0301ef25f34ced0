#include "device_blocks.h"

#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

#include "chunk_table.h"

namespace trash_panda::runtime {

Result<std::unique_ptr<DeviceBlocks>> DeviceBlocks::create(std::shared_ptr<Device> device,
                                                           const Needs& needs) {
  auto blocks = std::make_unique<DeviceBlocks>(std::move(device), needs);
  for (std::size_t slot = 0; slot < needs.slot_count; ++slot) {
    TP_ASSIGN_OR_RETURN(const Place place, blocks->add(needs.slot_bytes));
    blocks->free_slots_.push_back(place);
  }
  if (needs.compute_bytes > 0) {
    TP_ASSIGN_OR_RETURN(const Place compute, blocks->take_compute());
    blocks->give_back_compute(compute);
  }
  return blocks;
}

DeviceBlocks::~DeviceBlocks() {
  // Twice, if need be, as an error may be of earlier work. Whatever the second says: nothing else
  // can be done, and a context that is broken computes no more.
  const auto surely_wait_for = [this](const auto& what) {
    if (!device_->synchronize(what)) {
      static_cast<void>(device_->synchronize(what));
    }
  };
  surely_wait_for(device_->copy_stream());
  for (const Memory& memory : places_) {
    if (memory.was_used) {
      surely_wait_for(memory.used);
    }
  }
  for (Copy& copy : copies_) {
    copy.on_done();
  }
}

Result<DeviceBlocks::Place> DeviceBlocks::add(std::uint64_t size_bytes) {
  Memory memory;
  TP_ASSIGN_OR_RETURN(memory.memory, device_->allocate(size_bytes));
  TP_ASSIGN_OR_RETURN(memory.used, device_->make_event());
  places_.push_back(std::move(memory));
  return places_.size() - 1;
}

Result<DeviceBlocks::Place> DeviceBlocks::add_resident(std::uint64_t size_bytes) {
  return add(size_bytes);
}

Result<void> DeviceBlocks::remove_resident(Place place) {
  Memory& memory = places_[place];
  if (memory.filled != nullptr) {
    TP_RETURN_IF_ERROR(device_->synchronize(memory.filled));
  }
  if (memory.was_used) {
    TP_RETURN_IF_ERROR(device_->synchronize(memory.used));
  }
  memory = Memory();
  return {};
}

std::optional<DeviceBlocks::Place> DeviceBlocks::take_slot() {
  if (free_slots_.empty()) {
    return std::nullopt;
  }
  const Place slot = free_slots_.front();
  free_slots_.pop_front();
  return slot;
}

Result<DeviceBlocks::Place> DeviceBlocks::take_compute() {
  if (!free_compute_.empty()) {
    const Place compute = free_compute_.back();
    free_compute_.pop_back();
    return compute;
  }
  if (compute_count_ == needs_.compute_count_max) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("{} expanded blocks of up to {} are held at once",
                                             compute_count_, format_bytes(needs_.compute_bytes)))
            .with_hint("release one before the next is acquired"));
  }
  TP_ASSIGN_OR_RETURN(const Place compute, add(needs_.compute_bytes));
  ++compute_count_;
  return compute;
}

std::uint64_t DeviceBlocks::size_bytes() const {
  std::uint64_t total_bytes = 0;
  for (const Memory& memory : places_) {
    total_bytes += memory.memory.bytes.size();
  }
  return total_bytes;
}

bool DeviceBlocks::has_room(std::uint64_t size_bytes) const {
  return copies_.empty() || in_flight_bytes_ + size_bytes <= needs_.in_flight_bytes_max;
}

/// Before a place is written: its last use must be over.
Result<void> DeviceBlocks::wait_for_use(Memory& memory, StreamHandle stream) {
  if (memory.was_used) {
    TP_RETURN_IF_ERROR(device_->wait(stream, memory.used));
    memory.was_used = false;
  }
  return {};
}

Result<void> DeviceBlocks::fill(Place place, std::span<const std::byte> source,
                                const TensorLayout& layout, std::span<const std::uint32_t> chunks,
                                std::function<void()> on_done) {
  Result<DeviceEvent> done = queue_copy(places_[place], source, layout, chunks);
  if (!done || *done == nullptr) {
    on_done();
    return done ? Result<void>() : std::unexpected(std::move(done).error());
  }
  in_flight_bytes_ += source.size();
  copies_.push_back(
      {.done = *std::move(done), .size_bytes = source.size(), .on_done = std::move(on_done)});
  return {};
}

/// @return What marks the end of the copy; null: it is over.
Result<DeviceEvent> DeviceBlocks::queue_copy(Memory& memory, std::span<const std::byte> source,
                                             const TensorLayout& layout,
                                             std::span<const std::uint32_t> chunks) {
  const StreamHandle stream = device_->copy_stream();
  TP_ASSIGN_OR_RETURN(DeviceEvent done, device_->make_event());
  TP_RETURN_IF_ERROR(wait_for_use(memory, stream));
  TP_RETURN_IF_ERROR(copy_extent(*device_, memory.memory.bytes, source, layout, chunks));
  if (!device_->record(done, stream)) {
    TP_RETURN_IF_ERROR(device_->synchronize(stream));
    done = nullptr;
  }
  memory.filled = done;
  return done;
}

Result<std::vector<TensorView>> DeviceBlocks::make(const TensorLayout& layout, Place stored,
                                                   std::optional<Place> compute,
                                                   StreamHandle stream) {
  std::span<std::byte> target;
  if (compute) {
    TP_RETURN_IF_ERROR(wait_for_use(places_[*compute], stream));
    target = bytes(*compute);
  }
  return device_->place(layout, bytes(stored), target, stream);
}

Result<void> DeviceBlocks::begin_use(Place place, StreamHandle stream) {
  return places_[place].filled == nullptr ? Result<void>()
                                          : device_->wait(stream, places_[place].filled);
}

void DeviceBlocks::end_use(Place place, StreamHandle stream) {
  Memory& memory = places_[place];
  // Of two uses on different streams the event stands for both.
  const Result<void> ordered =
      memory.was_used ? device_->wait(stream, memory.used) : Result<void>();
  if (ordered && device_->record(memory.used, stream)) {
    memory.was_used = true;
    return;
  }
  // No event to wait for later: wait now. What fails here fails again where it can be said.
  static_cast<void>(device_->synchronize(stream));
}

Result<void> DeviceBlocks::follow(Place place, StreamHandle from, StreamHandle to) {
  end_use(place, from);
  return places_[place].was_used ? device_->wait(to, places_[place].used) : Result<void>();
}

Result<void> DeviceBlocks::wait_for_uses() {
  for (const Memory& memory : places_) {
    if (memory.was_used) {
      TP_RETURN_IF_ERROR(device_->synchronize(memory.used));
    }
  }
  return {};
}

Result<void> DeviceBlocks::poll() {
  while (!copies_.empty()) {
    TP_ASSIGN_OR_RETURN(const bool is_done, device_->has_passed(copies_.front().done));
    if (!is_done) {
      return {};
    }
    in_flight_bytes_ -= copies_.front().size_bytes;
    const std::function<void()> on_done = std::move(copies_.front().on_done);
    copies_.pop_front();
    on_done();
  }
  return {};
}

std::optional<DeviceEvent> DeviceBlocks::next_copy() const {
  return copies_.empty() ? std::nullopt : std::optional(copies_.front().done);
}

Result<void> DeviceBlocks::wait_for_copy() {
  TP_RETURN_IF_ERROR(device_->synchronize(copies_.front().done));
  return poll();
}

}  // namespace trash_panda::runtime
