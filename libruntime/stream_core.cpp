#include "stream_core.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace trash_panda::runtime {

namespace {

using format::Tier;

/// Calls hold the mutex for less than a millisecond, unless they wait for a copy that is not
/// pinned.
constexpr int kReclaimAttempts = 100;
constexpr std::chrono::microseconds kReclaimPause{100};

}  // namespace

const format::PackedExtent& StreamCore::extent(std::size_t block_index) const {
  TP_ASSERT(block_index < blocks_.size());
  return *blocks_[block_index].extent;
}

bool StreamCore::is_resident(std::size_t block_index) const {
  TP_ASSERT(block_index < blocks_.size());
  const std::lock_guard lock(mutex_);
  const Block& block = blocks_[block_index];
  return block.tier == Tier::kRam && block.layout.compute_bytes == 0 && device_->is_host();
}

format::Tier StreamCore::tier(std::size_t block_index) const {
  TP_ASSERT(block_index < blocks_.size());
  const std::lock_guard lock(mutex_);
  return blocks_[block_index].tier;
}

const std::vector<TensorView>& StreamCore::tensors(std::size_t block_index) const {
  return blocks_[block_index].tensors;
}

std::size_t StreamCore::distance(std::size_t block_index) const {
  const std::size_t count = blocks_.size();
  const std::size_t steps = (block_index + count - position_) % count;
  return steps == 0 ? count : steps;
}

std::span<std::byte> StreamCore::stored_bytes(const Block& block) const {
  return block.tier == Tier::kRam ? block.home
                                  : slots_.bytes(*block.slot).first(block.extent->stored_bytes);
}

void StreamCore::start_read(Block& block) {
  block.is_used = false;
  block.is_dropped = false;
  block.read = read_extent(*block.extent, stored_bytes(block),
                           block.tier == Tier::kDisk ? read_disk_bytes_ : read_ram_bytes_);
}

/// Ends all reading for good, so that what is still under way is done, with errors.
void StreamCore::give_up_reading() {
  std::unique_ptr<ExtentReader> reader;
  {
    const std::lock_guard lock(mutex_);
    reader = std::move(reader_);
  }
  reader.reset();  // Waits for what is in flight, which needs no lock of ours.
}

/// Gives a block of the RAM tier memory, where it has none.
Result<void> StreamCore::take_home(Block& block, HomeFor reason) {
  const std::uint64_t size_bytes = block.extent->stored_bytes;
  if (!block.home.empty() || size_bytes == 0) {
    return {};
  }
  if (reason == HomeFor::kAhead) {
    TP_ASSIGN_OR_RETURN(block.own_home, account_->take_free(MemoryUse::kRamTier, size_bytes));
  } else {
    Result<BookedBuffer> taken = account_->take_from_resting(MemoryUse::kRamTier, size_bytes);
    while (!taken && demote_for(taken.error())) {
      taken = account_->take_from_resting(MemoryUse::kRamTier, size_bytes);
    }
    TP_ASSIGN_OR_RETURN(block.own_home, std::move(taken));
  }
  block.home = block.own_home.span().first(size_bytes);
  return {};
}

/// Gives back the memory of a block of the RAM tier that nobody holds; it is read again when it is
/// asked for.
///
/// @return Bytes given back; 0 where it has none of its own, or is being read.
std::uint64_t StreamCore::give_up_home(Block& block) {
  if (block.is_promoted) {
    return demote(block);
  }
  const std::uint64_t size_bytes = block.own_home.size_bytes();
  if (size_bytes == 0 || block.lease_count > 0 || (block.read && !block.read->is_done())) {
    return 0;
  }
  forget(block);
  block.home = {};
  block.own_home = BookedBuffer();
  block.is_dropped = true;
  record_home(block, /*stays=*/false);
  return size_bytes;
}

/// Gives memory to another model; what this one's plan has only if it rests: blocks that are needed
/// last go first.
std::uint64_t StreamCore::reclaim(std::uint64_t wanted_bytes, GiveBack what) {
  // Whoever asks has a lock of its own: two models must not wait for each other for long.
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (int attempt = 0; !lock && attempt < kReclaimAttempts; ++attempt) {
    std::this_thread::sleep_for(kReclaimPause);
    static_cast<void>(lock.try_lock());
  }
  if (!lock) {
    return 0;
  }
  if (what == GiveBack::kPromoted) {
    return demote_promoted(wanted_bytes);
  }
  const auto is_held = [](const Block& block) { return block.lease_count > 0; };
  if (is_pass_open_ || std::ranges::any_of(blocks_, is_held)) {
    return 0;
  }
  std::uint64_t given_bytes = 0;
  for (std::size_t step = blocks_.size(); step > 0 && given_bytes < wanted_bytes; --step) {
    given_bytes += give_up_home(blocks_[(position_ + step) % blocks_.size()]);
  }
  return given_bytes;
}

/// Gives up what was read of a block that nobody holds. No read of it is in flight.
void StreamCore::forget(Block& block) {
  unmake(block);
  block.read.reset();
  if (block.slot) {
    slots_.give_back(*block.slot);
    block.slot.reset();
  }
  settle(block);
}

/// Of the blocks in slots that nobody holds, the one that is needed last.
std::optional<std::size_t> StreamCore::farthest_in_slot(bool only_done) const {
  std::optional<std::size_t> farthest;
  for (std::size_t at = 0; at < blocks_.size(); ++at) {
    const Block& block = blocks_[at];
    const bool is_candidate =
        block.slot && block.lease_count == 0 && (!only_done || block.read->is_done());
    if (is_candidate && (!farthest || distance(at) > distance(*farthest))) {
      farthest = at;
    }
  }
  return farthest;
}

/// Begins to read the block that is asked for now, at the cost of what was read ahead.
Result<void> StreamCore::start_needed(Block& block) {
  if (on_device_ && waits_in_slot(block)) {
    TP_ASSIGN_OR_RETURN(block.slot, take_host_slot(block));
  } else if (block.tier == Tier::kDisk) {
    block.slot = slots_.take();
    if (!block.slot) {
      const std::optional<std::size_t> victim = farthest_in_slot(/*only_done=*/false);
      if (!victim) {
        return std::unexpected(
            Error(ErrorCode::kUsage,
                  fmt::format("block \"{}\" can't be acquired: all {} slots are held",
                              printable(block.extent->name), slots_.slot_count()))
                .with_hint("release a lease first, or ask for more lookahead"));
      }
      // How that read went does not matter: the block is read again when it is needed.
      static_cast<void>(blocks_[*victim].read->wait());
      forget(blocks_[*victim]);
      block.slot = slots_.take();
    }
  } else {
    TP_RETURN_IF_ERROR(take_home(block, HomeFor::kUse));
  }
  start_read(block);
  return {};
}

/// Begins to read what is needed next, as far as slots and the window allow.
void StreamCore::prefetch() {
  if (!device_->is_host()) {
    copy_ahead();
    if (on_device_ && on_device_->next_copy()) {
      note_work();  // What a copy leaves behind is for the thread that copies.
    }
    return;
  }
  if (!reader_) {
    return;
  }
  std::uint64_t ram_on_its_way_bytes = 0;
  for (std::size_t step = 1; step <= blocks_.size(); ++step) {
    const std::size_t at = (position_ + step) % blocks_.size();
    Block& block = blocks_[at];
    if (block.tier == Tier::kRam) {
      if (block.is_dropped || (block.read && block.read->is_done())) {
        continue;
      }
      if (!block.read) {
        if (ram_on_its_way_bytes > 0 &&
            ram_on_its_way_bytes + block.extent->stored_bytes > window_bytes_) {
          return;
        }
        if (!take_home(block, HomeFor::kAhead)) {
          return;  // Whoever needs it is told; until then others may give memory back.
        }
        start_read(block);
      }
      ram_on_its_way_bytes += block.extent->stored_bytes;
    } else if (!block.read) {
      block.slot = slots_.take();
      if (!block.slot) {
        // After a jump, slots may hold blocks that are needed later than this one.
        const std::optional<std::size_t> victim = farthest_in_slot(/*only_done=*/true);
        if (!victim || distance(*victim) <= distance(at)) {
          return;
        }
        forget(blocks_[*victim]);
        block.slot = slots_.take();
      }
      start_read(block);
    }
  }
}

void StreamCore::end_pass() {
  stats_.pass_read_bytes_ram = std::exchange(pass_ram_bytes_, 0);
  stats_.pass_read_bytes_disk = std::exchange(pass_disk_bytes_, 0);
  is_pass_open_ = false;
  rest_pins();
}

/// Counters of order and passes, when a block has come into use. Bytes count for the pass that uses
/// them, whenever they were read.
///
/// @param asked  When it was asked for.
void StreamCore::note_acquire(std::size_t block_index, RunClock::time_point asked) {
  Block& block = blocks_[block_index];
  stats_.mispredict_count += block_index == expected_ ? 0 : 1;
  expected_ = (block_index + 1) % blocks_.size();
  if (block_index == 0) {
    if (is_pass_open_) {
      end_pass();  // It ended before the last block: an early exit.
    }
    record_pass(asked);
    if (planned_disk_count_ < disk_order_.size()) {
      promote_from(planned_disk_count_, UINT64_MAX);
    }
    adapt_to_device_memory();
    is_pass_open_ = true;
    use_pins();
    account_->note_use();
    ++stats_.pass_count;
  }
  block.pass = stats_.pass_count;
  if (!block.is_used) {
    (block.tier == Tier::kDisk ? pass_disk_bytes_ : pass_ram_bytes_) += block.extent->stored_bytes;
    block.is_used = true;
  }
  if (is_pass_open_ && block_index + 1 == blocks_.size()) {
    end_pass();
  }
}

Result<void> StreamCore::acquire(std::size_t block_index, StreamHandle stream) {
  std::unique_lock lock(mutex_);
  if (block_index >= blocks_.size()) {
    return std::unexpected(Error(
        ErrorCode::kUsage,
        fmt::format("block {} was asked for, but the pack has {}", block_index, blocks_.size())));
  }
  TP_RETURN_IF_ERROR(check_on_device());
  Block& block = blocks_[block_index];
  ReadyTimes times = {.asked = RunClock::now(), .read = {}, .made = {}};
  position_ = block_index;
  if (block.lease_count > 0) {  // Another lease holds it: they share its memory.
    if (on_device_) {
      TP_RETURN_IF_ERROR(share(block, stream));
    }
    ++block.lease_count;
    note_acquire(block_index, times.asked);
    return {};
  }
  if (on_device_) {
    return acquire_on_device(block_index, stream, lock, times);
  }
  if ((options_.stop != nullptr && *options_.stop) || !reader_) {
    return std::unexpected(Error(ErrorCode::kInterrupted, "streaming was stopped"));
  }
  times.is_ahead = block.compute.has_value();
  const bool is_to_make = block.layout.compute_bytes > 0 && !times.is_ahead;
  if (is_to_make) {
    TP_RETURN_IF_ERROR(reserve_compute());
  }
  if (!block.read) {
    TP_RETURN_IF_ERROR(start_needed(block));
  }
  if (is_to_make) {
    block.compute = compute_->take();
  }
  block.lease_count = 1;
  is_making_ = true;
  prefetch();
  // Waiting and expanding must not keep leases from ending on other threads.
  lock.unlock();
  Result<void> ready = make_ready(block, times);
  lock.lock();
  is_making_ = false;
  const std::chrono::nanoseconds waited = times.read - times.asked;
  stats_.wait_ns += static_cast<std::uint64_t>(waited.count());
  if (!ready) {
    // Nothing of the failed read is kept: the next acquire() reads it anew.
    let_go(block);
    forget(block);
    return ready;
  }
  const bool is_first_use = !block.is_used;
  note_acquire(block_index, times.asked);
  note_ready(block, times, is_first_use);
  make_ahead();
  return {};
}

/// Waits for a held block, checks it and makes its tensors.
Result<void> StreamCore::make_ready(Block& block, ReadyTimes& times) {
  Result<void> read = block.read->wait(options_.stop);
  times.read = RunClock::now();
  if (!read && !block.read->is_done()) {
    give_up_reading();  // Its memory may go to another block only when nothing writes to it.
  }
  if (!read) {
    return std::unexpected(std::move(read).error().with_context(
        fmt::format("loading extent \"{}\"", printable(block.extent->name))));
  }
  const std::span<std::byte> stored = stored_bytes(block);
  if (options_.verify == VerifyMode::kFull && !block.is_used) {
    TP_RETURN_IF_ERROR(check_extent(*block.extent, stored));
  }
  if (block.compute) {
    if (Result<void> made = make_tensors(block, stored, times); !made) {
      return std::unexpected(std::move(made).error().with_context(
          fmt::format("extent \"{}\"", printable(block.extent->name))));
    }
  }
  view_tensors(block.layout, stored,
               block.compute ? compute_->bytes(*block.compute) : std::span<std::byte>(),
               block.tensors);
  times.made = RunClock::now();
  return {};
}

void StreamCore::let_go(Block& block) {
  block.lease_count = 0;
  block.tensors.clear();
  if (block.compute) {
    const std::size_t compute = *std::exchange(block.compute, std::nullopt);
    if (on_device_) {
      on_device_->give_back_compute(compute);
    } else {
      compute_->give_back(compute);
    }
  }
}

void StreamCore::release(std::size_t block_index, StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  Block& block = blocks_[block_index];
  TP_ASSERT(block.lease_count > 0);
  if (on_device_) {
    end_use_on_device(block, stream);
  }
  if (block.lease_count > 1) {
    --block.lease_count;
    return;
  }
  if (recorder_) {
    record_use(block);
  }
  let_go(block);
  if (on_device_) {
    leave_device(block);
    prefetch();
    return;
  }
  if (block.tier == Tier::kDisk) {
    forget(block);
    prefetch();
  }
  make_ahead();
}

Result<void> StreamCore::preload(std::size_t block_index) {
  std::shared_ptr<ExtentRead> read;
  {
    const std::lock_guard lock(mutex_);
    if (block_index >= blocks_.size()) {
      return std::unexpected(Error(
          ErrorCode::kUsage,
          fmt::format("block {} was asked for, but the pack has {}", block_index, blocks_.size())));
    }
    Block& block = blocks_[block_index];
    if (block.tier != Tier::kRam || !reader_) {
      return {};
    }
    if (!block.read) {
      TP_RETURN_IF_ERROR(take_home(block, HomeFor::kAhead));
      start_read(block);
    }
    read = block.read;
  }
  Result<void> done = read->wait();
  if (!done) {
    const std::lock_guard lock(mutex_);
    Block& block = blocks_[block_index];
    if (block.read == read && block.lease_count == 0) {
      forget(block);
    }
  }
  return done;
}

std::uint64_t StreamCore::drop(std::size_t block_index) {
  const std::lock_guard lock(mutex_);
  if (block_index >= blocks_.size()) {
    return 0;
  }
  return give_up_home(blocks_[block_index]);
}

void StreamCore::close() {
  account_->stop_offering();
  std::unique_ptr<ExtentReader> reader;
  copier_ = std::jthread();  // Ends when the copy that it waits for is done.
  {
    const std::lock_guard lock(mutex_);
    end_recording();
    reader = std::move(reader_);
  }
  if (workers_ != nullptr) {
    workers_->stop();
  }
  reader.reset();  // Waits for what is in flight, which needs no lock of ours.
}

StreamStats StreamCore::stats() const {
  const std::lock_guard lock(mutex_);
  StreamStats stats = stats_;
  stats.read_bytes_base = read_base_bytes_;
  stats.read_bytes_ram = read_ram_bytes_;
  stats.read_bytes_disk = read_disk_bytes_;
  for (std::size_t at = 0; at < disk_order_.size(); ++at) {
    const Block& block = blocks_[disk_order_[at]];
    stats.promoted_block_count += block.is_promoted ? 1U : 0U;
    stats.promoted_bytes += block.is_promoted ? block.own_home.size_bytes() : 0U;
    const bool is_streamed = !block.is_promoted && !block.resident;
    stats.demoted_block_count += at >= planned_disk_count_ && is_streamed ? 1U : 0U;
  }
  stats.device_demoted_block_count = static_cast<std::uint64_t>(std::ranges::count_if(
      left_device_, [this](std::size_t at) { return !blocks_[at].resident; }));
  stats.weight_memory_bytes = account_->now_bytes();
  stats.weight_memory_bytes_max = account_->max_bytes();
  stats.device_memory_bytes = device_memory_bytes();
  return stats;
}

}  // namespace trash_panda::runtime
