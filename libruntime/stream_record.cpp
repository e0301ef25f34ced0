// What a streamer tells the run log.

#include <utility>

#include "stream_core.h"

namespace trash_panda::runtime {

Result<void> StreamCore::open_recorder() {
  if (options_.run_log.empty()) {
    return {};
  }
  RunStart start = {.pack = pack_,
                    .io = stats_.io_description,
                    .device = stats_.device_description,
                    .blocks = {},
                    .plan = std::exchange(plan_, std::nullopt),
                    .memory = memory_now(),
                    .memory_text = MemoryLedger::of_process()->snapshot()};
  for (const Block& block : blocks_) {
    start.blocks.push_back({.name = block.extent->name,
                            .tier = block.tier,
                            .stored_bytes = block.extent->stored_bytes});
  }
  TP_ASSIGN_OR_RETURN(recorder_, RunRecorder::create(options_.run_log, start, options_.log));
  return {};
}

std::uint64_t StreamCore::device_memory_bytes() const {
  std::uint64_t total_bytes = on_device_ ? on_device_->size_bytes() : 0;
  for (const DeviceMemory& memory : base_device_memory_) {
    total_bytes += memory.bytes.size();
  }
  return total_bytes;
}

RunMemory StreamCore::memory_now() const {
  return {.at = RunClock::now(),
          .bytes_by_use = account_->bytes_by_use(),
          .device_bytes = device_memory_bytes()};
}

/// Writes down the pass before, of which all blocks have been computed now.
///
/// @param next_begin  Of the pass that begins.
void StreamCore::record_pass(RunClock::time_point next_begin) {
  if (recorder_ && stats_.pass_count > 0) {
    recorder_->add(memory_now());
    recorder_->end_pass({.pass = stats_.pass_count,
                         .begin = pass_begin_,
                         .end = last_release_,
                         .read_bytes_ram = stats_.pass_read_bytes_ram,
                         .read_bytes_disk = stats_.pass_read_bytes_disk});
  }
  pass_begin_ = next_begin;
}

/// Writes the rest, the pass that is under way included. Copies of blocks that were used end before
/// that, as their records would be missing.
void StreamCore::end_recording() {
  if (is_pass_open_) {
    end_pass();
  }
  record_pass(RunClock::now());
  while (recorder_ && on_device_ && on_device_->next_copy() && on_device_->wait_for_copy()) {
  }
  recorder_.reset();
}

void StreamCore::end_log() {
  const std::lock_guard lock(mutex_);
  if (recorder_) {
    end_recording();
  }
}

/// Records of a block that has become ready.
void StreamCore::note_ready(Block& block, const ReadyTimes& times, bool is_first_use) {
  block.acquired_at = times.made;
  if (!recorder_) {
    return;
  }
  RunSpan span = {.pass = block.pass, .block = index_of(block)};
  if (is_first_use) {
    const ExtentRead::Times read = block.read ? block.read->times() : block.read_times;
    span.kind = SpanKind::kRead;
    span.begin = read.queued;
    span.end = read.done;
    span.size_bytes = block.extent->stored_bytes;
    recorder_->add(span);
  }
  if (const std::shared_ptr<CopyTimes> copy = std::exchange(block.copy_times, nullptr)) {
    copy->pass = block.pass;
    if (copy->done) {
      record_copy(block, *copy);
    }
  }
  RunSpan making = span;
  making.kind = block.layout.is_coded ? SpanKind::kDecode : SpanKind::kExpand;
  making.begin = times.is_ahead ? times.make.began : times.queued.value_or(times.read);
  making.end = times.is_ahead ? times.make.ended : times.made;
  making.size_bytes = block.layout.compute_bytes;
  RunSpan waiting = span;
  waiting.kind = SpanKind::kWait;
  waiting.cause = times.is_ahead ? making.kind : SpanKind::kRead;
  waiting.begin = times.asked;
  waiting.end = times.is_ahead ? times.made : times.read;
  waiting.size_bytes = block.extent->stored_bytes;
  const bool is_made = making.size_bytes > 0 || options_.verify == VerifyMode::kFull;
  // By their ends.
  if (is_made && times.is_ahead) {
    recorder_->add(making);
  }
  recorder_->add(waiting);
  if (times.queued) {
    waiting.cause = SpanKind::kCopy;
    waiting.begin = times.read;
    waiting.end = *times.queued;
    recorder_->add(waiting);
  }
  if (is_made && !times.is_ahead) {
    recorder_->add(making);
  }
}

/// A copy's source is not needed any more: it has arrived, or failed.
void StreamCore::note_copied(const Block& block, CopyTimes* times) {
  if (times != nullptr) {
    times->done = RunClock::now();
    if (times->pass > 0) {
      record_copy(block, *times);
    }
  }
}

void StreamCore::record_copy(const Block& block, const CopyTimes& times) {
  if (recorder_) {
    recorder_->add(RunSpan{.kind = SpanKind::kCopy,
                           .pass = times.pass,
                           .block = index_of(block),
                           .begin = times.queued,
                           .end = *times.done,
                           .size_bytes = block.extent->stored_bytes});
  }
}

/// @param stays  Else it gave up its memory in RAM.
void StreamCore::record_home(const Block& block, bool stays) {
  if (recorder_) {
    recorder_->add(RunHome{.at = RunClock::now(), .block = index_of(block), .stays = stays});
  }
}

/// A block is given back.
void StreamCore::record_use(const Block& block) {
  last_release_ = RunClock::now();
  RunSpan span = {.kind = SpanKind::kCompute,
                  .pass = block.pass,
                  .block = index_of(block),
                  .begin = block.acquired_at,
                  .end = last_release_};
  for (const TensorView& tensor : block.tensors) {
    span.size_bytes += tensor.size_bytes;
  }
  recorder_->add(span);
}

}  // namespace trash_panda::runtime
