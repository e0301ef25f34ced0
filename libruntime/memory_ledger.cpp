#include "memory_ledger.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/hardware.h"

#include "memory_limits.h"

namespace trash_panda::runtime {

namespace {

constexpr std::array<std::string_view, kMemoryUseCount> kUseNames = {"base", "RAM tier", "slots",
                                                                     "expanded blocks"};

std::string_view use_name(MemoryUse use) {
  return kUseNames.at(static_cast<std::size_t>(use));
}

MemoryLimit machine_limit() {
  plan::Hardware hardware;
  read_memory_limits("/proc", "/sys/fs/cgroup", hardware);
  if (hardware.cgroup_limit_bytes) {
    return {.size_bytes = *hardware.cgroup_limit_bytes,
            .name = fmt::format("control group {}", printable(hardware.cgroup_path))};
  }
  if (hardware.ram_total_bytes == 0) {  // No procfs: the system refuses what it can't give.
    return {.size_bytes = UINT64_MAX, .name = "the address space"};
  }
  return {.size_bytes = hardware.ram_total_bytes, .name = "RAM"};
}

std::uint64_t available_on_machine() {
  plan::Hardware hardware;
  read_memory_limits("/proc", "/sys/fs/cgroup", hardware);
  return hardware.ram_total_bytes == 0 ? UINT64_MAX : hardware.ram_available_bytes;
}

/// What the system says about memory now: the last word of a process that is killed for it.
std::string system_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::string text;
  std::string line;
  while (std::getline(meminfo, line)) {
    std::istringstream fields(line);
    std::string key;
    std::uint64_t kib = 0;
    fields >> key >> kib;
    if (key == "MemAvailable:") {
      text += fmt::format("; {} of RAM available", format_bytes(kib * kKiB));
    } else if (key == "Committed_AS:") {
      text += fmt::format(", {} committed", format_bytes(kib * kKiB));
    }
  }
  return text;
}

Error does_not_fit(MemoryUse use, std::string_view owner, std::uint64_t size_bytes,
                   const std::string& left, Shortage shortage) {
  return Error(ErrorCode::kDoesNotFit,
               fmt::format("{} of {} take {}, but {}", use_name(use), printable(owner),
                           format_bytes(size_bytes), left))
      .with_hint("less lookahead or a plan with a smaller RAM tier (--max-ram) takes less")
      .with_shortage(shortage);
}

}  // namespace

std::uint64_t booked_size(std::uint64_t size_bytes) {
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return round_up(size_bytes, page_bytes).value_or(UINT64_MAX);
}

std::shared_ptr<MemoryLedger> MemoryLedger::of_process() {
  static const auto kLedger = std::make_shared<MemoryLedger>(machine_limit(), available_on_machine);
  return kLedger;
}

std::uint64_t MemoryLedger::booked_bytes() const {
  const std::lock_guard lock(mutex_);
  return booked_bytes_;
}

std::string MemoryLedger::snapshot() const {
  const std::lock_guard lock(mutex_);
  std::string text = fmt::format("weights take {} of {} ({})", format_bytes(booked_bytes_),
                                 format_bytes(limit_.size_bytes), limit_.name);
  for (const MemoryAccount* account : accounts_) {
    std::string_view separator = ": ";
    for (std::size_t use = 0; use < kMemoryUseCount; ++use) {
      if (account->bytes_by_use_.at(use) > 0) {
        text += separator == ": " ? fmt::format("; {}", printable(account->owner_)) : "";
        text += fmt::format("{}{} {}", separator, kUseNames.at(use),
                            format_bytes(account->bytes_by_use_.at(use)));
        separator = ", ";
      }
    }
  }
  return text + system_memory();
}

MemoryAccount::MemoryAccount(std::shared_ptr<MemoryLedger> ledger, std::string owner,
                             std::optional<std::uint64_t> size_bytes_max,
                             std::shared_ptr<MemoryGroup> group)
    : ledger_(std::move(ledger)),
      owner_(std::move(owner)),
      size_bytes_max_(size_bytes_max),
      group_(std::move(group)) {
  const std::lock_guard lock(ledger_->mutex_);
  ledger_->accounts_.push_back(this);
}

MemoryAccount::~MemoryAccount() {
  const std::lock_guard lock(ledger_->mutex_);
  std::erase(ledger_->accounts_, this);
}

Result<BookedBuffer> MemoryAccount::take(MemoryUse use, std::uint64_t size_bytes) {
  return take_from_others(use, size_bytes, GiveBack::kPromoted);
}

Result<BookedBuffer> MemoryAccount::take_from_resting(MemoryUse use, std::uint64_t size_bytes) {
  return take_from_others(use, size_bytes, GiveBack::kResting);
}

Result<BookedBuffer> MemoryAccount::take_free(MemoryUse use, std::uint64_t size_bytes) {
  if (size_bytes == 0) {
    return BookedBuffer();
  }
  const std::uint64_t taken_bytes = booked_size(size_bytes);
  TP_RETURN_IF_ERROR(book(use, taken_bytes));
  Result<AlignedBuffer> memory = AlignedBuffer::create(taken_bytes);
  if (!memory) {
    give_back(use, taken_bytes);
    return std::unexpected(std::move(memory).error());
  }
  return BookedBuffer(shared_from_this(), use, *std::move(memory));
}

Result<BookedBuffer> MemoryAccount::take_from_others(MemoryUse use, std::uint64_t size_bytes,
                                                     GiveBack what) {
  Result<BookedBuffer> taken = take_free(use, size_bytes);
  while (!taken && taken.error().code() == ErrorCode::kDoesNotFit && taken.error().shortage()) {
    const Shortage shortage = *taken.error().shortage();
    const std::uint64_t wanted_bytes =
        shortage.needed_bytes - std::min(shortage.needed_bytes, shortage.budget_bytes);
    const bool is_given = reclaim_from_others(wanted_bytes, GiveBack::kPromoted) ||
                          (what == GiveBack::kResting && reclaim_from_others(wanted_bytes, what));
    if (!is_given) {
      return taken;
    }
    taken = take_free(use, size_bytes);
  }
  return taken;
}

/// @return Whether anything was given back.
bool MemoryAccount::reclaim_from_others(std::uint64_t wanted_bytes, GiveBack what) {
  std::vector<std::pair<std::uint64_t, Reclaim>> others;
  {
    const std::lock_guard lock(ledger_->mutex_);
    for (const MemoryAccount* account : ledger_->accounts_) {
      // What is short may be the group's limit: who is not in it could not help.
      if (account != this && account->reclaim_ && account->group_ == group_) {
        others.emplace_back(account->last_use_, account->reclaim_);
      }
    }
  }
  std::ranges::sort(others, {}, [](const auto& other) { return other.first; });
  return std::ranges::any_of(others, [wanted_bytes, what](const auto& other) {
    return other.second(wanted_bytes, what) > 0;
  });
}

std::uint64_t MemoryAccount::left_bytes(std::uint64_t untouched_bytes) const {
  const auto left = [](std::uint64_t limit_bytes, std::uint64_t used_bytes) {
    return limit_bytes - std::min(limit_bytes, used_bytes);
  };
  std::uint64_t left_bytes = UINT64_MAX;
  if (ledger_->available_bytes_) {
    left_bytes = left(ledger_->available_bytes_(), untouched_bytes);
  }
  const std::lock_guard lock(ledger_->mutex_);
  left_bytes = std::min(left_bytes, left(ledger_->limit_.size_bytes, ledger_->booked_bytes_));
  if (size_bytes_max_) {
    left_bytes = std::min(left_bytes, left(*size_bytes_max_, now_bytes_));
  }
  if (group_ != nullptr) {
    left_bytes = std::min(left_bytes, left(group_->limit_bytes_, group_->now_bytes_));
  }
  return left_bytes;
}

std::uint64_t MemoryAccount::make_room(std::uint64_t wanted_bytes) {
  std::uint64_t now_left_bytes = left_bytes();
  while (now_left_bytes < wanted_bytes &&
         reclaim_from_others(wanted_bytes - now_left_bytes, GiveBack::kPromoted)) {
    now_left_bytes = left_bytes();
  }
  return now_left_bytes;
}

void MemoryAccount::offer(Reclaim reclaim) {
  const std::lock_guard lock(ledger_->mutex_);
  reclaim_ = std::move(reclaim);
}

void MemoryAccount::stop_offering() {
  offer(nullptr);
}

void MemoryAccount::note_use() {
  const std::lock_guard lock(ledger_->mutex_);
  last_use_ = ++ledger_->use_count_;
}

Result<void> MemoryAccount::book(MemoryUse use, std::uint64_t size_bytes) {
  const std::lock_guard lock(ledger_->mutex_);
  if (size_bytes_max_ && size_bytes > *size_bytes_max_ - std::min(*size_bytes_max_, now_bytes_)) {
    return std::unexpected(
        does_not_fit(use, owner_, size_bytes,
                     fmt::format("{} of its limit of {} are taken", format_bytes(now_bytes_),
                                 format_bytes(*size_bytes_max_)),
                     {.needed_bytes = now_bytes_ + size_bytes, .budget_bytes = *size_bytes_max_}));
  }
  if (group_ != nullptr &&
      size_bytes > group_->limit_bytes_ -
                       std::min<std::uint64_t>(group_->limit_bytes_, group_->now_bytes_)) {
    return std::unexpected(does_not_fit(
        use, owner_, size_bytes,
        fmt::format("weights already take {} of {} ({})", format_bytes(group_->now_bytes_),
                    format_bytes(group_->limit_bytes_), group_->name_),
        {.needed_bytes = group_->now_bytes_ + size_bytes, .budget_bytes = group_->limit_bytes_}));
  }
  const MemoryLimit& limit = ledger_->limit_;
  if (size_bytes > limit.size_bytes - std::min(limit.size_bytes, ledger_->booked_bytes_)) {
    return std::unexpected(does_not_fit(
        use, owner_, size_bytes,
        fmt::format("weights already take {} of {} ({})", format_bytes(ledger_->booked_bytes_),
                    format_bytes(limit.size_bytes), limit.name),
        {.needed_bytes = ledger_->booked_bytes_ + size_bytes, .budget_bytes = limit.size_bytes}));
  }
  ledger_->booked_bytes_ += size_bytes;
  bytes_by_use_.at(static_cast<std::size_t>(use)) += size_bytes;
  now_bytes_ += size_bytes;
  max_bytes_ = std::max(max_bytes_, now_bytes_);
  if (group_ != nullptr) {
    group_->now_bytes_ += size_bytes;
    group_->max_bytes_ = std::max<std::uint64_t>(group_->max_bytes_, group_->now_bytes_);
  }
  return {};
}

void MemoryAccount::give_back(MemoryUse use, std::uint64_t size_bytes) {
  const std::lock_guard lock(ledger_->mutex_);
  TP_ASSERT(size_bytes <= bytes_by_use_.at(static_cast<std::size_t>(use)));
  ledger_->booked_bytes_ -= size_bytes;
  bytes_by_use_.at(static_cast<std::size_t>(use)) -= size_bytes;
  now_bytes_ -= size_bytes;
  if (group_ != nullptr) {
    group_->now_bytes_ -= size_bytes;
  }
}

std::uint64_t MemoryAccount::now_bytes() const {
  const std::lock_guard lock(ledger_->mutex_);
  return now_bytes_;
}

std::array<std::uint64_t, kMemoryUseCount> MemoryAccount::bytes_by_use() const {
  const std::lock_guard lock(ledger_->mutex_);
  return bytes_by_use_;
}

std::uint64_t MemoryAccount::max_bytes() const {
  const std::lock_guard lock(ledger_->mutex_);
  return max_bytes_;
}

BookedBuffer::BookedBuffer(BookedBuffer&& other) noexcept
    : account_(std::move(other.account_)), use_(other.use_), memory_(std::move(other.memory_)) {}

BookedBuffer& BookedBuffer::operator=(BookedBuffer&& other) noexcept {
  std::swap(account_, other.account_);
  std::swap(use_, other.use_);
  std::swap(memory_, other.memory_);
  return *this;
}

BookedBuffer::~BookedBuffer() {
  if (account_ != nullptr) {
    const std::uint64_t size_bytes = memory_.size_bytes();
    memory_ = AlignedBuffer();  // Given back before the books say so.
    account_->give_back(use_, size_bytes);
  }
}

void keep_for_good(BookedBuffer memory) {
  static std::mutex mutex;
  static std::vector<BookedBuffer> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace trash_panda::runtime
