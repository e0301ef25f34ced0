#include "stream_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

namespace trash_panda::runtime {

std::size_t slot_count_of(std::uint64_t lookahead_bytes, std::uint64_t largest_extent_bytes,
                          std::size_t disk_block_count) {
  if (disk_block_count == 0) {
    return 0;
  }
  TP_ASSERT(largest_extent_bytes > 0);
  const std::uint64_t ahead = lookahead_bytes / largest_extent_bytes +
                              (lookahead_bytes % largest_extent_bytes == 0 ? 0 : 1);
  return std::min(1 + std::max<std::uint64_t>(ahead, 1), std::uint64_t{disk_block_count});
}

Result<SlotPool> SlotPool::create(MemoryAccount& account, std::size_t slot_count,
                                  std::uint64_t slot_bytes) {
  SlotPool pool;
  if (slot_count > 0 && slot_bytes > UINT64_MAX / slot_count) {
    return std::unexpected(
        Error(ErrorCode::kDoesNotFit, fmt::format("{} slots of {} are more than the address space",
                                                  slot_count, format_bytes(slot_bytes))));
  }
  TP_ASSIGN_OR_RETURN(pool.memory_, account.take(MemoryUse::kSlots, slot_count * slot_bytes));
  pool.slot_count_ = slot_count;
  pool.slot_bytes_ = slot_bytes;
  pool.free_.resize(slot_count);
  std::iota(pool.free_.rbegin(), pool.free_.rend(), std::size_t{0});
  return pool;
}

std::optional<std::size_t> SlotPool::take() {
  if (free_.empty()) {
    return std::nullopt;
  }
  const std::size_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void SlotPool::give_back(std::size_t slot) {
  TP_ASSERT(slot < slot_count_ && free_.size() < slot_count_);
  free_.push_back(slot);
}

std::span<std::byte> SlotPool::bytes(std::size_t slot) const {
  return memory_.span().subspan(slot * slot_bytes_, slot_bytes_);
}

BookedBuffer SlotPool::take_memory() {
  slot_count_ = 0;
  free_.clear();
  return std::move(memory_);
}

BufferPool::BufferPool(MemoryAccount& account, std::uint64_t buffer_bytes,
                       std::size_t buffer_count_max)
    : account_(account), buffer_bytes_(buffer_bytes), buffer_count_max_(buffer_count_max) {}

Result<void> BufferPool::reserve(std::size_t buffer_count) {
  while (free_.size() < buffer_count) {
    if (buffers_.size() == buffer_count_max_) {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("{} expanded blocks of up to {} are held at once",
                                               buffers_.size(), format_bytes(buffer_bytes_)))
              .with_hint("release one before the next is acquired"));
    }
    TP_ASSIGN_OR_RETURN(BookedBuffer buffer, account_.take(MemoryUse::kExpanded, buffer_bytes_));
    free_.push_back(buffers_.size());
    buffers_.push_back(std::move(buffer));
  }
  return {};
}

std::size_t BufferPool::take() {
  TP_ASSERT(!free_.empty());
  const std::size_t buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void BufferPool::give_back(std::size_t buffer) {
  TP_ASSERT(buffer < buffers_.size());
  free_.push_back(buffer);
}

std::span<std::byte> BufferPool::bytes(std::size_t buffer) const {
  return buffers_[buffer].span();
}

}  // namespace trash_panda::runtime
