#include "pin_ledger.h"

#include <algorithm>
#include <utility>

#include "trash_panda/plan/hardware.h"

#include "device.h"
#include "memory_limits.h"

namespace trash_panda::runtime {

namespace {

/// Of RAM: what is left keeps the system, its page cache and other programs going.
constexpr std::uint64_t kPinnedPercentMax = 40;

std::uint64_t pinnable_bytes() {
  plan::Hardware hardware;
  read_memory_limits("/proc", "/sys/fs/cgroup", hardware);
  const std::uint64_t ram_bytes =
      hardware.cgroup_limit_bytes ? std::min(*hardware.cgroup_limit_bytes, hardware.ram_total_bytes)
                                  : hardware.ram_total_bytes;
  return ram_bytes / 100 * kPinnedPercentMax;
}

}  // namespace

PinnedRegion::PinnedRegion(PinLedger& ledger, std::list<Entry>::iterator entry)
    : ledger_(&ledger), entry_(entry) {}

PinnedRegion::PinnedRegion(PinnedRegion&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)), entry_(other.entry_) {}

PinnedRegion& PinnedRegion::operator=(PinnedRegion&& other) noexcept {
  std::swap(ledger_, other.ledger_);
  std::swap(entry_, other.entry_);
  return *this;
}

PinnedRegion::~PinnedRegion() {
  static_cast<void>(close());  // Said to be the owner's duty.
}

bool PinnedRegion::begin_use() {
  if (ledger_ == nullptr) {
    return false;
  }
  const std::lock_guard lock(ledger_->mutex_);
  ++entry_->user_count;
  return entry_->is_pinned || ledger_->pin(*entry_);
}

void PinnedRegion::end_use() {
  if (ledger_ == nullptr) {
    return;
  }
  const std::lock_guard lock(ledger_->mutex_);
  TP_ASSERT(entry_->user_count > 0);
  --entry_->user_count;
  // To the end: the one that was used last.
  ledger_->entries_.splice(ledger_->entries_.end(), ledger_->entries_, entry_);
}

Result<void> PinnedRegion::close() {
  if (ledger_ == nullptr) {
    return {};
  }
  PinLedger& ledger = *std::exchange(ledger_, nullptr);
  const std::lock_guard lock(ledger.mutex_);
  Result<void> unpinned = entry_->is_pinned ? ledger.unpin(*entry_) : Result<void>();
  ledger.entries_.erase(entry_);
  return unpinned;
}

std::shared_ptr<PinLedger> PinLedger::of_process() {
  static const auto ledger = std::make_shared<PinLedger>(pinnable_bytes());
  return ledger;
}

PinnedRegion PinLedger::add(Device& device, std::span<std::byte> memory) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({.device = &device, .memory = memory});
  return {*this, std::prev(entries_.end())};
}

std::uint64_t PinLedger::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  return pinned_bytes_;
}

/// Unpins what nobody uses until there is room, or nothing if there can't be.
bool PinLedger::make_room(std::uint64_t size_bytes) {
  std::uint64_t idle_bytes = 0;
  for (const Entry& entry : entries_) {
    idle_bytes += entry.is_pinned && entry.user_count == 0 ? entry.memory.size() : 0;
  }
  if (size_bytes > size_bytes_max_ || pinned_bytes_ - idle_bytes > size_bytes_max_ - size_bytes) {
    return false;
  }
  for (Entry& entry : entries_) {
    if (pinned_bytes_ <= size_bytes_max_ - size_bytes) {
      break;
    }
    if (entry.is_pinned && entry.user_count == 0) {
      // What can't be unpinned stays in the books.
      static_cast<void>(unpin(entry));
    }
  }
  return pinned_bytes_ <= size_bytes_max_ - size_bytes;
}

bool PinLedger::pin(Entry& entry) {
  if (entry.is_refused || !make_room(entry.memory.size())) {
    return false;
  }
  entry.is_pinned = entry.device->pin(entry.memory).has_value();
  entry.is_refused = !entry.is_pinned;
  if (entry.is_refused) {
    return false;
  }
  pinned_bytes_ += entry.memory.size();
  return true;
}

Result<void> PinLedger::unpin(Entry& entry) {
  Result<void> unpinned = entry.device->unpin(entry.memory);
  if (!unpinned) {
    unpinned = entry.device->unpin(entry.memory);  // The error may have been of earlier work.
  }
  if (unpinned) {
    entry.is_pinned = false;
    pinned_bytes_ -= entry.memory.size();
  }
  return unpinned;
}

}  // namespace trash_panda::runtime
