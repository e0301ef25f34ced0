#include "chunk_pipeline.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/aligned_buffer.h"

namespace trash_panda::format {

namespace {

using Filled = Result<std::span<const std::byte>>;

/// Chunk i always uses buffer i % count: it is free once chunk i - count went through all stages.
class Pipeline {
 public:
  Pipeline(std::size_t chunk_count, const ChunkFill& fill, std::vector<AlignedBuffer> buffers)
      : chunk_count_(chunk_count),
        fill_(fill),
        buffers_(std::move(buffers)),
        slots_(buffers_.size()) {}

  /// One thread's work: fills chunks until there are no more.
  void fill_chunks() {
    std::unique_lock lock(mutex_);
    while (true) {
      can_fill_.wait(lock, [&] {
        return is_cancelled_ || next_chunk_ == chunk_count_ ||
               next_chunk_ - consumed_count_ < buffers_.size();
      });
      if (is_cancelled_ || next_chunk_ == chunk_count_) {
        return;
      }
      const std::size_t chunk_index = next_chunk_++;
      const std::size_t slot = chunk_index % buffers_.size();
      lock.unlock();
      Filled filled = fill_(chunk_index, buffers_[slot].span());
      lock.lock();
      slots_[slot] = {.stages_begun = 1, .filled = std::move(filled)};
      can_use_.notify_all();
    }
  }

  /// The work of a thread of stage `stage`, which is not the last one. Errors travel on with their
  /// chunk, so that the first in chunk order is returned.
  void run_stage(std::size_t stage, const ChunkUse& use) {
    for (std::size_t chunk_index = 0; chunk_index < chunk_count_; ++chunk_index) {
      Slot* slot = wait_for(chunk_index, stage);
      if (slot == nullptr) {
        return;
      }
      Result<void> used = slot->filled ? use(chunk_index, *slot->filled) : Result<void>();
      const std::scoped_lock lock(mutex_);
      if (!used) {
        slot->filled = std::unexpected(std::move(used).error());
      }
      ++slot->stages_begun;
      can_use_.notify_all();
    }
  }

  Result<void> run_last_stage(std::size_t stage, const ChunkUse& use, StopFlag stop) {
    for (std::size_t chunk_index = 0; chunk_index < chunk_count_; ++chunk_index) {
      if (stop != nullptr && stop->load(std::memory_order_relaxed)) {
        return std::unexpected(Error(ErrorCode::kInterrupted, "interrupted"));
      }
      Slot* slot = wait_for(chunk_index, stage);
      TP_ASSERT(slot != nullptr);
      TP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, slot->filled);
      TP_RETURN_IF_ERROR(use(chunk_index, bytes));
      const std::scoped_lock lock(mutex_);
      slot->stages_begun = 0;
      ++consumed_count_;
      can_fill_.notify_all();
    }
    return {};
  }

  void cancel() {
    const std::scoped_lock lock(mutex_);
    is_cancelled_ = true;
    can_fill_.notify_all();
    can_use_.notify_all();
  }

 private:
  /// What waits in a buffer.
  struct Slot {
    std::size_t stages_begun = 0;  ///< 0: not filled. Else stage `stages_begun` - 1 has it.
    Filled filled;
  };

  /// @return Null when the pipeline was cancelled.
  Slot* wait_for(std::size_t chunk_index, std::size_t stage) {
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[chunk_index % buffers_.size()];
    can_use_.wait(lock, [&] { return is_cancelled_ || slot.stages_begun == stage + 1; });
    return is_cancelled_ ? nullptr : &slot;
  }

  const std::size_t chunk_count_;
  const ChunkFill& fill_;
  std::vector<AlignedBuffer> buffers_;
  std::mutex mutex_;
  std::condition_variable can_fill_;
  std::condition_variable can_use_;
  std::vector<Slot> slots_;  ///< By buffer.
  std::size_t next_chunk_ = 0;
  std::size_t consumed_count_ = 0;
  bool is_cancelled_ = false;
};

/// On failure those that were started run on, until the pipeline is cancelled.
Result<void> start_threads(Pipeline& pipeline, unsigned fill_thread_count,
                           const std::vector<ChunkUse>& stages,
                           std::vector<std::jthread>& threads) {
  const std::size_t thread_count = fill_thread_count + stages.size() - 1;
  threads.reserve(thread_count);
  // std::jthread reports the system's refusal (thread limit, memory) by an exception only.
  try {
    while (threads.size() < fill_thread_count) {
      threads.emplace_back([&pipeline] { pipeline.fill_chunks(); });
    }
    for (std::size_t stage = 0; stage + 1 < stages.size(); ++stage) {
      threads.emplace_back(
          [&pipeline, &stages, stage] { pipeline.run_stage(stage, stages[stage]); });
    }
  } catch (const std::system_error& refused) {
    return std::unexpected(Error::from_errno(
        refused.code().value(),
        fmt::format("can't start thread {} of {}", threads.size() + 1, thread_count)));
  }
  return {};
}

}  // namespace

Result<void> run_chunk_pipeline(std::size_t chunk_count, const ChunkPipelineOptions& options,
                                const ChunkFill& fill, const std::vector<ChunkUse>& stages) {
  TP_ASSERT(options.buffer_count > 0 && options.thread_count > 0 && !stages.empty());
  std::vector<AlignedBuffer> buffers;
  for (std::size_t i = 0; i < std::min(options.buffer_count, chunk_count); ++i) {
    TP_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::create(options.buffer_bytes));
    buffers.push_back(std::move(buffer));
  }
  if (chunk_count == 0) {
    return {};
  }
  Pipeline pipeline(chunk_count, fill, std::move(buffers));
  std::vector<std::jthread> threads;
  const auto fill_thread_count =
      static_cast<unsigned>(std::min<std::size_t>(options.thread_count, chunk_count));
  Result<void> result = start_threads(pipeline, fill_thread_count, stages, threads);
  if (result) {
    result = pipeline.run_last_stage(stages.size() - 1, stages.back(), options.stop);
  }
  pipeline.cancel();
  return result;
}

}  // namespace trash_panda::format
