#include "extent_read.h"

#include <algorithm>
#include <utility>

namespace trash_panda::runtime {

std::shared_ptr<ExtentRead> ExtentRead::start(IoEngine& engine, const File& file, ExtentPlace place,
                                              std::span<std::byte> target,
                                              const ChunkCallback& on_chunk) {
  auto read = std::make_shared<ExtentRead>();
  read->times_.queued = std::chrono::steady_clock::now();
  read->times_.done = read->times_.queued;
  // All are counted before the first is queued: chunks come in while others are still queued.
  read->pending_chunks_ = (target.size() + place.chunk_bytes - 1) / place.chunk_bytes;
  for (std::uint64_t at = 0; at < target.size(); at += place.chunk_bytes) {
    const std::span<std::byte> chunk =
        target.subspan(at, std::min(place.chunk_bytes, target.size() - at));
    engine.submit({.file = &file,
                   .offset_bytes = place.offset_bytes + at,
                   .target = chunk,
                   .completion = [read, on_chunk, size_bytes = chunk.size()](Result<void> result) {
                     if (result && on_chunk) {
                       on_chunk(size_bytes);
                     }
                     read->finish_chunk(std::move(result));
                   }});
  }
  return read;
}

void ExtentRead::finish_chunk(Result<void> result) {
  const std::lock_guard lock(mutex_);
  if (!result && !first_error_) {
    first_error_ = std::move(result).error();
  }
  --pending_chunks_;
  if (pending_chunks_ == 0) {
    times_.done = std::chrono::steady_clock::now();
    done_.notify_all();
  }
}

Result<void> ExtentRead::wait() const {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return pending_chunks_ == 0; });
  if (first_error_) {
    return std::unexpected(*first_error_);
  }
  return {};
}

ExtentRead::Times ExtentRead::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

bool ExtentRead::is_done() const {
  const std::lock_guard lock(mutex_);
  return pending_chunks_ == 0;
}

}  // namespace trash_panda::runtime
