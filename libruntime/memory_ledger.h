#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/error.h"
#include "trash_panda/runtime/memory_group.h"

namespace trash_panda::runtime {

/// What weight memory is for.
enum class MemoryUse { kBase, kRamTier, kSlots, kExpanded };
inline constexpr std::size_t kMemoryUseCount = 4;

struct MemoryLimit {
  std::uint64_t size_bytes = 0;
  std::string name;  ///< For messages: "RAM", "control group /app".
};

/// What a model gives of its memory, so that another one has enough.
enum class GiveBack {
  kPromoted,  ///< Blocks that it holds beyond its plan, also while it runs.
  kResting,   ///< Also those of its plan, while it rests.
};

/// What an amount of memory takes in the books: whole pages.
[[nodiscard]] std::uint64_t booked_size(std::uint64_t size_bytes);

class MemoryAccount;

/// All weight memory of a process, booked before it is taken, so that several models share one
/// limit and a refusal comes as an error with numbers instead of a killed process.
///
/// Thread-safe, and so are its accounts.
class MemoryLedger {
 public:
  /// @param available_bytes  What the system has left now, for left_bytes(); empty: enough.
  explicit MemoryLedger(MemoryLimit limit, std::function<std::uint64_t()> available_bytes = {})
      : limit_(std::move(limit)), available_bytes_(std::move(available_bytes)) {}
  /// The one that all models of this process share. Its limit is the tighter of RAM and control
  /// group when it is first asked for.
  static std::shared_ptr<MemoryLedger> of_process();

  [[nodiscard]] std::uint64_t booked_bytes() const;
  /// One line for a log: what is booked, of what, by whom for what, and what the system has left.
  [[nodiscard]] std::string snapshot() const;

 private:
  friend class MemoryAccount;

  mutable std::mutex mutex_;
  const MemoryLimit limit_;
  const std::function<std::uint64_t()> available_bytes_;
  std::uint64_t booked_bytes_ = 0;
  std::uint64_t use_count_ = 0;
  std::vector<const MemoryAccount*> accounts_;
};

/// Memory that is booked, and given back when this ends. Page-aligned, as AlignedBuffer.
class BookedBuffer {
 public:
  BookedBuffer() = default;
  BookedBuffer(BookedBuffer&& other) noexcept;
  BookedBuffer& operator=(BookedBuffer&& other) noexcept;
  BookedBuffer(const BookedBuffer&) = delete;
  BookedBuffer& operator=(const BookedBuffer&) = delete;
  ~BookedBuffer();

  [[nodiscard]] std::uint64_t size_bytes() const { return memory_.size_bytes(); }
  [[nodiscard]] std::span<std::byte> span() const { return memory_.span(); }

 private:
  friend class MemoryAccount;
  BookedBuffer(std::shared_ptr<MemoryAccount> account, MemoryUse use, AlignedBuffer memory)
      : account_(std::move(account)), use_(use), memory_(std::move(memory)) {}

  std::shared_ptr<MemoryAccount> account_;
  MemoryUse use_ = MemoryUse::kBase;
  AlignedBuffer memory_;
};

/// Keeps memory as long as the process: what a driver still holds pinned must not be freed.
void keep_for_good(BookedBuffer memory);

/// One model's part of a ledger.
class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
 public:
  /// @param owner           For messages: the pack.
  /// @param size_bytes_max  Of this model; nothing: only the ledger's limit counts.
  /// @param group           What others share with it, all accounts of one ledger; null: nothing.
  MemoryAccount(std::shared_ptr<MemoryLedger> ledger, std::string owner,
                std::optional<std::uint64_t> size_bytes_max,
                std::shared_ptr<MemoryGroup> group = nullptr);
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;
  /// All its buffers have ended, as they share it.
  ~MemoryAccount();

  /// Books memory and takes it. 0 bytes give an empty buffer. Before it fails for want of memory,
  /// other models are asked for blocks that they hold beyond their plans.
  ///
  /// @param size_bytes  Rounded up to whole pages.
  /// @retval kDoesNotFit  A limit would be passed; the message has the numbers.
  /// @retval kFailed      The system refused the memory.
  Result<BookedBuffer> take(MemoryUse use, std::uint64_t size_bytes);
  /// The same, but models that rest are asked for blocks of their plans, too: the one that has
  /// rested longest first, and only as many as it takes. For what is computed with now.
  Result<BookedBuffer> take_from_resting(MemoryUse use, std::uint64_t size_bytes);
  /// The same, but nobody is asked. For what is read ahead, which waits, and what is not needed.
  Result<BookedBuffer> take_free(MemoryUse use, std::uint64_t size_bytes);
  /// The most that take_free() would give now: of all limits, and of what the system has left.
  ///
  /// @param untouched_bytes  Booked, and not written to yet: the system does not count them.
  [[nodiscard]] std::uint64_t left_bytes(std::uint64_t untouched_bytes = 0) const;
  /// Asks other models for blocks that they hold beyond their plans, until so much is left.
  ///
  /// @return left_bytes() then, which may be less.
  std::uint64_t make_room(std::uint64_t wanted_bytes);
  /// Given the bytes wanted, gives back at least as much, or what there is, and returns how much.
  using Reclaim = std::function<std::uint64_t(std::uint64_t wanted_bytes, GiveBack what)>;
  /// Says how this model gives memory back.
  ///
  /// @param reclaim  Called by any thread, and possibly after stop_offering() has returned.
  void offer(Reclaim reclaim);
  void stop_offering();
  /// Says that the model is used now.
  void note_use();
  [[nodiscard]] std::uint64_t now_bytes() const;
  /// The same by MemoryUse.
  [[nodiscard]] std::array<std::uint64_t, kMemoryUseCount> bytes_by_use() const;
  /// The most that was ever booked.
  [[nodiscard]] std::uint64_t max_bytes() const;

 private:
  friend class MemoryLedger;
  friend class BookedBuffer;

  Result<void> book(MemoryUse use, std::uint64_t size_bytes);
  void give_back(MemoryUse use, std::uint64_t size_bytes);
  Result<BookedBuffer> take_from_others(MemoryUse use, std::uint64_t size_bytes, GiveBack what);
  [[nodiscard]] bool reclaim_from_others(std::uint64_t wanted_bytes, GiveBack what);

  const std::shared_ptr<MemoryLedger> ledger_;
  const std::string owner_;
  const std::optional<std::uint64_t> size_bytes_max_;
  const std::shared_ptr<MemoryGroup> group_;
  // Guarded by the ledger's mutex.
  std::array<std::uint64_t, kMemoryUseCount> bytes_by_use_ = {};
  std::uint64_t now_bytes_ = 0;
  std::uint64_t max_bytes_ = 0;
  std::uint64_t last_use_ = 0;  ///< By the ledger's count of uses.
  Reclaim reclaim_;
};

}  // namespace trash_panda::runtime
