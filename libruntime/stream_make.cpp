// Tensors of a streamer's blocks that are made in host memory: decoded, expanded, ahead of their
// use.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

#include "stream_core.h"

namespace trash_panda::runtime {

namespace {

/// Less is made before another thread has woken up.
constexpr std::uint64_t kHelpedBytes = 1 * kMiB;

}  // namespace

/// A second buffer, so that one block is made while another is in use; what can't be done without
/// has its memory by now.
void StreamCore::take_ahead_memory() {
  if (workers_ == nullptr || workers_->thread_count() == 0 || blocks_.size() < 2) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const std::uint64_t taken_bytes = account_->now_bytes();
  const bool is_planned =
      !ram_budget_bytes_ ||
      compute_->buffer_bytes() <= *ram_budget_bytes_ - std::min(*ram_budget_bytes_, taken_bytes);
  const std::size_t used_count = compute_->buffer_count() - compute_->free_count();
  const Result<void> taken =
      is_planned ? compute_->reserve(2 - std::min<std::size_t>(used_count, 2))
                 : std::unexpected(Error(
                       ErrorCode::kDoesNotFit,
                       fmt::format("weights take {} of the plan's {}, and {} more would be needed",
                                   format_bytes(taken_bytes), format_bytes(*ram_budget_bytes_),
                                   format_bytes(compute_->buffer_bytes()))));
  if (!taken) {
    options_.log(LogLevel::kInfo, fmt::format("{}: blocks are expanded when they are asked for",
                                              taken.error().message()));
  }
}

/// Makes sure that there is a buffer for the block that is asked for, at the cost of what was made
/// ahead.
Result<void> StreamCore::reserve_compute() {
  for (Block& block : blocks_) {
    if (compute_->free_count() > 0) {
      return {};
    }
    if (block.lease_count == 0) {
      unmake(block);
    }
  }
  Result<void> reserved = compute_->reserve(1);
  while (!reserved && demote_for(reserved.error())) {
    reserved = compute_->reserve(1);
  }
  return reserved;
}

/// Begins to make the tensors of the next block, when it has come in and a buffer is free. While
/// the one before is still being made, that comes first.
void StreamCore::make_ahead() {
  if (!reader_ || workers_ == nullptr || workers_->thread_count() == 0 || is_making_) {
    return;
  }
  Block& next = blocks_[(position_ + 1) % blocks_.size()];
  const bool is_to_make = next.layout.compute_bytes > 0 && next.lease_count == 0 && !next.compute &&
                          compute_->free_count() > 0;
  if (!is_to_make || !next.read || !next.read->is_done() || !next.read->wait()) {
    return;  // Who asks for it is told what went wrong.
  }
  if (options_.verify == VerifyMode::kFull && !next.is_used) {
    return;  // It is checked by who asks for it.
  }
  const std::size_t buffer = compute_->take();
  TensorMaker& maker = *makers_[buffer];
  if (!maker.begin(next.layout, stored_bytes(next), compute_->bytes(buffer))) {
    compute_->give_back(buffer);
    return;
  }
  next.compute = buffer;
  workers_->help(maker);
}

/// Gives up what was made ahead of a block.
void StreamCore::unmake(Block& block) {
  if (block.compute && workers_ != nullptr) {
    makers_[*block.compute]->give_up();
    compute_->give_back(*std::exchange(block.compute, std::nullopt));
  }
}

/// Makes the tensors of a held block, or waits for those that are made ahead.
Result<void> StreamCore::make_tensors(Block& block, std::span<std::byte> stored,
                                      ReadyTimes& times) {
  TensorMaker& maker = *makers_[*block.compute];
  if (!times.is_ahead) {
    TP_RETURN_IF_ERROR(maker.begin(block.layout, stored, compute_->bytes(*block.compute)));
    if (maker.target_bytes() >= kHelpedBytes) {
      workers_->help(maker);
    }
  }
  Result<void> made = maker.finish(scratch_);
  times.make = maker.times();
  return made;
}

}  // namespace trash_panda::runtime
