#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>

#include "trash_panda/base/error.h"

namespace trash_panda::runtime {

class Device;
class PinLedger;

/// A range of host memory that is copied from again and again, and is pinned while that is
/// possible.
class PinnedRegion {
 public:
  PinnedRegion() = default;
  PinnedRegion(PinnedRegion&& other) noexcept;
  PinnedRegion& operator=(PinnedRegion&& other) noexcept;
  PinnedRegion(const PinnedRegion&) = delete;
  PinnedRegion& operator=(const PinnedRegion&) = delete;
  /// Like close(), but if that fails, the memory must not be freed, and nobody is told.
  ~PinnedRegion();

  /// Protects the region from being unpinned, and pins it if it is not and there is room: regions
  /// that nobody uses make place, those unused for longest first, as many as are needed.
  ///
  /// @return Whether it is pinned. If not, copies from it work, but the caller waits for them.
  bool begin_use();
  void end_use();
  /// Unpins it. No copy from it is under way, and nobody uses it.
  ///
  /// @retval kDevice  It is still pinned: its memory must stay where it is.
  Result<void> close();

 private:
  friend class PinLedger;
  struct Entry;
  PinnedRegion(PinLedger& ledger, std::list<Entry>::iterator entry);

  PinLedger* ledger_ = nullptr;  ///< Null when closed.
  std::list<Entry>::iterator entry_;
};

struct PinnedRegion::Entry {
  Device* device;
  std::span<std::byte> memory;
  bool is_pinned = false;
  bool is_refused = false;  ///< By the driver: not asked again.
  std::size_t user_count = 0;
};

/// All memory that is pinned for one or more devices, with one cap: pinned memory is taken from all
/// other programs, and a system without any left stands still.
///
/// Regions stay pinned when their model rests, as pinning takes about as long as reading from the
/// page cache: models that take turns do not pin again unless the cap makes them.
///
/// Thread-safe.
class PinLedger {
 public:
  explicit PinLedger(std::uint64_t size_bytes_max) : size_bytes_max_(size_bytes_max) {}
  PinLedger(const PinLedger&) = delete;
  PinLedger& operator=(const PinLedger&) = delete;
  ~PinLedger() = default;
  /// The one that all devices of this process share. Its cap is 40 % of the smaller of RAM and the
  /// control group's limit.
  static std::shared_ptr<PinLedger> of_process();

  /// A region that is not pinned yet. The ledger, the device and the memory outlive it.
  PinnedRegion add(Device& device, std::span<std::byte> memory);
  [[nodiscard]] std::uint64_t size_bytes_max() const { return size_bytes_max_; }
  [[nodiscard]] std::uint64_t pinned_bytes() const;

 private:
  friend class PinnedRegion;
  using Entry = PinnedRegion::Entry;

  bool make_room(std::uint64_t size_bytes);
  bool pin(Entry& entry);
  Result<void> unpin(Entry& entry);

  const std::uint64_t size_bytes_max_;
  mutable std::mutex mutex_;
  std::uint64_t pinned_bytes_ = 0;
  std::list<Entry> entries_;  ///< Longest unused first.
};

}  // namespace trash_panda::runtime
