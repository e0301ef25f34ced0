// Blocks that go from RAM to disk where memory is short, and from disk to RAM where it is not.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/spread_order.h"

#include "stream_core.h"

namespace trash_panda::runtime {

using format::PackedExtent;
using format::Tier;

/// The most host memory that open_base() takes at one time: it reads an extent while the one before
/// is placed.
Result<std::uint64_t> StreamCore::base_host_bytes() const {
  std::vector<const PackedExtent*> extents;
  for (const PackedExtent& extent : manifest_.extents) {
    if (extent.tier == Tier::kBase) {
      extents.push_back(&extent);
    }
  }
  const auto stored_bytes = [&extents](std::size_t at) {
    return at < extents.size() ? booked_size(extents[at]->stored_bytes) : 0;
  };
  std::uint64_t now_bytes = stored_bytes(0);
  std::uint64_t most_bytes = now_bytes;
  for (std::size_t at = 0; at < extents.size(); ++at) {
    now_bytes += stored_bytes(at + 1);
    most_bytes = std::max(most_bytes, now_bytes);
    if (!device_->is_host()) {
      now_bytes -= stored_bytes(at);
      continue;
    }
    TP_ASSIGN_OR_RETURN(TensorLayout layout,
                        lay_out_tensors(*extents[at], options_, Unchanged::kInPlace));
    if (layout.compute_bytes > 0) {
      TP_ASSIGN_OR_RETURN(layout, lay_out_tensors(*extents[at], options_, Unchanged::kCopied));
      now_bytes += booked_size(layout.compute_bytes);
      most_bytes = std::max(most_bytes, now_bytes);
      now_bytes -= stored_bytes(at);
    }
  }
  return most_bytes;
}

/// Blocks of the RAM tier, those first that can be done without first: as the plan has it.
std::vector<std::size_t> StreamCore::ram_demotion_order() const {
  std::vector<std::size_t> order;
  const auto add = [&](std::size_t at) {
    if (at < blocks_.size() && blocks_[at].tier == Tier::kRam &&
        std::ranges::find(order, at) == order.end()) {
      order.push_back(at);
    }
  };
  std::ranges::for_each(demote_ram_, add);
  std::ranges::for_each(plan::spread_order(blocks_.size()), add);
  return order;
}

/// Moves blocks of the RAM tier to disk until all fits that is taken when a pack is opened, as few
/// as possible. What does not fit in any way fails where it is taken.
Result<void> StreamCore::demote_to_fit() {
  TP_ASSIGN_OR_RETURN(const std::uint64_t base_bytes, base_host_bytes());
  const auto needed_bytes = [&] {
    const HostNeeds needs = host_needs();
    return base_bytes + booked_size(needs.ram_bytes) +
           booked_size(needs.slot_count * needs.slot_bytes) + booked_size(needs.compute_bytes);
  };
  const std::uint64_t planned_bytes = needed_bytes();
  const std::uint64_t left_bytes = account_->make_room(planned_bytes);
  const auto ram_count = std::ranges::count(blocks_, Tier::kRam, &Block::tier);
  std::uint64_t least_bytes = planned_bytes;
  std::vector<std::size_t> order;
  if (least_bytes > left_bytes) {
    order = ram_demotion_order();
  }
  std::size_t count = 0;
  for (std::size_t tried = 0; tried < order.size() && least_bytes > left_bytes; ++tried) {
    blocks_[order[tried]].tier = Tier::kDisk;
    if (const std::uint64_t bytes = needed_bytes(); bytes < least_bytes) {
      least_bytes = bytes;
      count = tried + 1;
    }
  }
  // The first few bring slots with them, and may take more than they give.
  for (std::size_t at = count; at < order.size(); ++at) {
    blocks_[order[at]].tier = Tier::kRam;
  }
  order.resize(count);
  disk_order_ = std::move(order);
  if (count > 0) {
    options_.log(
        LogLevel::kWarning,
        fmt::format("{} of {} blocks of the RAM tier are read from disk every pass: "
                    "weights take {}, and {} are left; they stay in RAM when memory frees",
                    count, ram_count, format_bytes(planned_bytes), format_bytes(left_bytes)));
  }
  return {};
}

/// Puts those of the disk tier before the blocks that were moved there.
void StreamCore::list_disk_blocks() {
  std::vector<std::size_t> planned;
  for (std::size_t at = 0; at < blocks_.size(); ++at) {
    if (blocks_[at].tier == Tier::kDisk &&
        std::ranges::find(disk_order_, at) == disk_order_.end()) {
      planned.push_back(at);
    }
  }
  std::vector<std::size_t> spread;
  for (const std::size_t at : plan::spread_order(planned.size())) {
    spread.push_back(planned[at]);
  }
  planned_disk_count_ = spread.size();
  disk_order_.insert(disk_order_.begin(), spread.begin(), spread.end());
}

/// Memory that is free for more blocks of the RAM tier, beside what this streamer is going to take.
std::uint64_t StreamCore::promotable_bytes() const {
  std::uint64_t claimed_bytes = 0;
  std::uint64_t untouched_bytes = 0;
  for (const Block& block : blocks_) {
    const std::uint64_t size_bytes = booked_size(block.extent->stored_bytes);
    if (block.tier == Tier::kRam && block.home.empty()) {
      claimed_bytes += size_bytes;
    } else if (block.tier == Tier::kRam ? !block.read : block.is_promoted) {
      untouched_bytes += size_bytes;
    }
  }
  std::uint64_t left_bytes = account_->left_bytes(untouched_bytes);
  if (ram_budget_bytes_) {
    left_bytes = std::min(left_bytes,
                          *ram_budget_bytes_ - std::min(*ram_budget_bytes_, account_->now_bytes()));
  }
  return left_bytes - std::min(left_bytes, claimed_bytes);
}

std::uint64_t StreamCore::promote(std::uint64_t size_bytes_max) {
  const std::lock_guard lock(mutex_);
  return promote_from(0, size_bytes_max);
}

/// @param first  Of disk_order_: only blocks from there on.
std::uint64_t StreamCore::promote_from(std::size_t first, std::uint64_t size_bytes_max) {
  const auto is_candidate = [this](std::size_t at) {
    const Block& block = blocks_[at];
    return !block.is_promoted && !block.resident && block.extent->stored_bytes > 0;
  };
  if (!reader_ || std::none_of(disk_order_.begin() + static_cast<std::ptrdiff_t>(first),
                               disk_order_.end(), is_candidate)) {
    return 0;
  }
  std::uint64_t left_bytes = std::min(size_bytes_max, promotable_bytes());
  std::uint64_t taken_bytes = 0;
  std::size_t count = 0;
  for (std::size_t at = disk_order_.size(); at-- > first;) {
    Block& block = blocks_[disk_order_[at]];
    const std::uint64_t size_bytes = booked_size(block.extent->stored_bytes);
    if (!is_candidate(disk_order_[at]) || size_bytes > left_bytes) {
      continue;
    }
    Result<BookedBuffer> home =
        account_->take_free(MemoryUse::kRamTier, block.extent->stored_bytes);
    if (!home) {
      break;  // Someone else was faster, or the system has none.
    }
    block.own_home = *std::move(home);
    block.is_promoted = true;
    left_bytes -= size_bytes;
    taken_bytes += size_bytes;
    ++count;
    settle(block);
  }
  if (count > 0) {
    const auto promoted = std::ranges::count_if(blocks_, &Block::is_promoted);
    options_.log(LogLevel::kInfo,
                 fmt::format("{} blocks of {} stay in RAM from their next read on ({}); {} are "
                             "read every pass",
                             count, printable(pack_), format_bytes(taken_bytes),
                             disk_order_.size() - static_cast<std::size_t>(promoted)));
  }
  return taken_bytes;
}

/// Lets a promoted block have its memory, once nothing of it is in a slot any more.
void StreamCore::settle(Block& block) {
  if (!block.is_promoted || block.tier == Tier::kRam || block.slot || block.read) {
    return;
  }
  block.tier = Tier::kRam;
  block.home = block.own_home.span().first(block.extent->stored_bytes);
  record_home(block, /*stays=*/true);
  if (PinLedger* const pins = device_->pins(); pins != nullptr) {
    // Refused, its copies are waited for.
    block.pin = pins->add(*device_, block.home);
    static_cast<void>(block.pin.begin_use());
    if (!are_pins_used_) {
      block.pin.end_use();
    }
  }
}

/// Gives back the memory of a promoted block; it is read every pass again.
///
/// @return Bytes given back; 0 while it is held in that memory, or on its way into or out of it.
std::uint64_t StreamCore::demote(Block& block) {
  if (block.tier == Tier::kRam) {
    if (block.lease_count > 0 || (block.read && !block.read->is_done()) ||
        block.home_copy_count > 0) {
      return 0;
    }
    unmake(block);
    block.read.reset();
    block.home = {};
    block.tier = Tier::kDisk;
    record_home(block, /*stays=*/false);
  }
  const std::uint64_t size_bytes = block.own_home.size_bytes();
  block.is_promoted = false;
  if (are_pins_used_) {
    block.pin.end_use();
  }
  if (!block.pin.close()) {
    keep_for_good(std::exchange(block.own_home, BookedBuffer()));
    return 0;
  }
  block.own_home = BookedBuffer();
  return size_bytes;
}

/// Gives back memory of promoted blocks, in the order in which they would go to disk.
std::uint64_t StreamCore::demote_promoted(std::uint64_t wanted_bytes) {
  std::uint64_t given_bytes = 0;
  std::size_t count = 0;
  for (const std::size_t at : disk_order_) {
    if (given_bytes >= wanted_bytes) {
      break;
    }
    const std::uint64_t block_bytes = blocks_[at].is_promoted ? demote(blocks_[at]) : 0;
    given_bytes += block_bytes;
    count += block_bytes > 0 ? 1U : 0U;
  }
  if (count > 0) {
    options_.log(LogLevel::kInfo,
                 fmt::format("{} blocks of {} are read every pass again: their {} are needed "
                             "elsewhere",
                             count, printable(pack_), format_bytes(given_bytes)));
  }
  return given_bytes;
}

/// Before this streamer fails for want of memory, it gives up what it has beyond its plan.
///
/// @return Whether to try again.
bool StreamCore::demote_for(const Error& error) {
  if (error.code() != ErrorCode::kDoesNotFit || !error.shortage()) {
    return false;
  }
  const Shortage& shortage = *error.shortage();
  return demote_promoted(shortage.needed_bytes -
                         std::min(shortage.needed_bytes, shortage.budget_bytes)) > 0;
}

}  // namespace trash_panda::runtime
