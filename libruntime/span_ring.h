#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace trash_panda::runtime {

/// A fixed number of entries on their way from one thread to another, without a lock: whoever adds
/// never waits for whoever takes. What finds it full is refused.
///
/// One thread at a time may push(), and one drain(), beside each other.
template <class Entry>
class SpanRing {
 public:
  /// @param capacity  A power of two.
  explicit SpanRing(std::size_t capacity)
      : capacity_(capacity), entries_(std::make_unique<Entry[]>(capacity)) {}

  /// @return Entries in it, this one included; 0: it is full, and the entry was not added.
  std::size_t push(const Entry& entry) {
    const std::size_t end = end_.load(std::memory_order_relaxed);
    const std::size_t count = end - begin_.load(std::memory_order_acquire);
    if (count == capacity_) {
      return 0;
    }
    entries_[end & (capacity_ - 1)] = entry;
    end_.store(end + 1, std::memory_order_release);
    return count + 1;
  }

  /// Takes out what is in it, in the order in which it was added.
  template <class Take>
  void drain(Take take) {
    std::size_t begin = begin_.load(std::memory_order_relaxed);
    const std::size_t end = end_.load(std::memory_order_acquire);
    for (; begin != end; ++begin) {
      take(std::as_const(entries_[begin & (capacity_ - 1)]));
      begin_.store(begin + 1, std::memory_order_release);
    }
  }

  [[nodiscard]] std::size_t capacity() const { return capacity_; }

 private:
  const std::size_t capacity_;
  const std::unique_ptr<Entry[]> entries_;
  std::atomic<std::size_t> begin_ = 0;  ///< Counted on without end; the place is the remainder.
  std::atomic<std::size_t> end_ = 0;
};

}  // namespace trash_panda::runtime
