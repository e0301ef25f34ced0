#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"

#include "memory_ledger.h"

namespace trash_panda::runtime {

/// Number of slots for the disk tier: the block in use, and as many of the largest size as hold
/// the lookahead, at least one; never more than there are disk blocks.
[[nodiscard]] std::size_t slot_count_of(std::uint64_t lookahead_bytes,
                                        std::uint64_t largest_extent_bytes,
                                        std::size_t disk_block_count);

/// Equal pieces of memory that are taken and given back. Not thread-safe.
///
/// All pieces made at once lie in one allocation, so that they can be registered with a device by
/// one call.
class SlotPool {
 public:
  /// @param account  Books the memory.
  /// @retval kDoesNotFit  A limit of memory would be passed.
  /// @retval kFailed      The system refused the memory.
  static Result<SlotPool> create(MemoryAccount& account, std::size_t slot_count,
                                 std::uint64_t slot_bytes);

  [[nodiscard]] std::size_t slot_count() const { return slot_count_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return memory_.size_bytes(); }
  /// All slots.
  [[nodiscard]] std::span<std::byte> span() const { return memory_.span(); }
  /// A free slot, taken; nothing when all are in use.
  [[nodiscard]] std::optional<std::size_t> take();
  void give_back(std::size_t slot);
  [[nodiscard]] std::span<std::byte> bytes(std::size_t slot) const;
  /// All slots' memory, for who keeps it; the pool has no slots any more.
  [[nodiscard]] BookedBuffer take_memory();

 private:
  BookedBuffer memory_;
  std::size_t slot_count_ = 0;
  std::uint64_t slot_bytes_ = 0;
  std::vector<std::size_t> free_;  ///< Last in, first out: the warmest memory first.
};

/// Buffers of one size that are made when they are first needed, up to a limit, and then reused.
/// Not thread-safe.
class BufferPool {
 public:
  /// @param account  Books each buffer; outlives the pool.
  BufferPool(MemoryAccount& account, std::uint64_t buffer_bytes, std::size_t buffer_count_max);

  [[nodiscard]] std::size_t buffer_count_max() const { return buffer_count_max_; }
  [[nodiscard]] std::uint64_t buffer_bytes() const { return buffer_bytes_; }
  [[nodiscard]] std::size_t buffer_count() const { return buffers_.size(); }
  [[nodiscard]] std::size_t free_count() const { return free_.size(); }
  /// Makes sure that the next take()s succeed without asking the system.
  /// @retval kUsage       Too many are in use.
  /// @retval kDoesNotFit  A limit of memory would be passed.
  /// @retval kFailed      The system refused the memory.
  Result<void> reserve(std::size_t buffer_count);
  /// A buffer that was reserved.
  [[nodiscard]] std::size_t take();
  void give_back(std::size_t buffer);
  [[nodiscard]] std::span<std::byte> bytes(std::size_t buffer) const;

 private:
  MemoryAccount& account_;
  std::uint64_t buffer_bytes_;
  std::size_t buffer_count_max_;
  std::vector<BookedBuffer> buffers_;
  std::vector<std::size_t> free_;
};

}  // namespace trash_panda::runtime
