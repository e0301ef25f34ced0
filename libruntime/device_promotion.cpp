// Blocks of tier gpu that wait in RAM while the device has no memory for them.

#include <algorithm>
#include <ranges>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/plan.h"

#include "chunk_table.h"
#include "stream_core.h"

namespace trash_panda::runtime {

/// At the begin of a pass: what the device has free may have changed. Blocks go there as long as
/// the headroom is left, and come back when even what activations leave of it is gone.
void StreamCore::adapt_to_device_memory() {
  const std::uint64_t headroom_bytes = options_.device_headroom_bytes.value_or(0);
  if (!on_device_ || (headroom_bytes == 0 && left_device_.empty())) {
    return;
  }
  const Result<DeviceMemoryLeft> left = device_->memory_left();
  if (!left) {
    return;  // An error of the driver shows again where something is asked of it.
  }
  const std::uint64_t least_bytes =
      std::min(headroom_bytes, plan::vram_reserve_bytes(left->total_bytes));
  if (left->free_bytes < least_bytes) {
    demote_from_device(least_bytes - left->free_bytes);
    warn_of_spilling(least_bytes);
  } else {
    promote_to_device(*left);
  }
}

/// The last that was moved to RAM is the first to go back. Its copy in RAM stays: that memory is a
/// part of the RAM tier's.
void StreamCore::promote_to_device(const DeviceMemoryLeft& left) {
  const std::uint64_t headroom_bytes = options_.device_headroom_bytes.value_or(0);
  std::uint64_t free_bytes = left.free_bytes - std::min(left.free_bytes, headroom_bytes);
  std::size_t count = 0;
  for (const std::size_t at : left_device_ | std::views::reverse) {
    Block& block = blocks_[at];
    const std::uint64_t size_bytes = device_bytes(*block.extent, block.layout);
    if (block.resident || size_bytes > free_bytes) {
      continue;
    }
    const Result<DeviceBlocks::Place> place = on_device_->add_resident(size_bytes);
    if (!place) {
      break;
    }
    block.resident = *place;  // Filled by its next copy.
    free_bytes -= size_bytes;
    ++count;
  }
  if (count > 0) {
    options_.log(LogLevel::kInfo, fmt::format("{} blocks of {} stay on the device from now on",
                                              count, printable(pack_)));
  }
}

/// Gives back memory of blocks that went to the device, the last to come first.
void StreamCore::demote_from_device(std::uint64_t wanted_bytes) {
  std::uint64_t given_bytes = 0;
  std::size_t count = 0;
  for (const std::size_t at : left_device_) {
    Block& block = blocks_[at];
    if (given_bytes >= wanted_bytes) {
      break;
    }
    if (!block.resident || (block.place == block.resident && block.lease_count > 0)) {
      continue;
    }
    const std::uint64_t size_bytes = on_device_->bytes(*block.resident).size();
    if (!on_device_->remove_resident(*block.resident)) {
      break;
    }
    if (block.place == block.resident) {
      block.place.reset();
    }
    block.resident.reset();
    given_bytes += size_bytes;
    ++count;
  }
  if (count > 0) {
    options_.log(LogLevel::kInfo,
                 fmt::format("{} blocks of {} wait in RAM again: others take memory of {}", count,
                             printable(pack_), device_->description()));
  }
}

/// Says, once, that less of the device's memory is free than should be.
void StreamCore::warn_of_spilling(std::uint64_t headroom_bytes) {
  if (is_spilling_said_ || headroom_bytes == 0) {
    return;
  }
  const Result<DeviceMemoryLeft> left = device_->memory_left();
  if (!left || left->free_bytes >= headroom_bytes) {
    return;
  }
  is_spilling_said_ = true;
  options_.log(
      LogLevel::kWarning,
      fmt::format("{} of {} are free on {}, less than the {} to be kept: a driver that moves what "
                  "does not fit into RAM makes every step slow; close other programs that use the "
                  "GPU, or plan with a larger --headroom-vram",
                  format_bytes(left->free_bytes), format_bytes(left->total_bytes),
                  device_->description(), format_bytes(headroom_bytes)));
}

}  // namespace trash_panda::runtime
