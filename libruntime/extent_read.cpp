#include "extent_read.h"

#include <algorithm>
#include <utility>

namespace trash_panda::runtime {

std::shared_ptr<ExtentRead> ExtentRead::start(std::span<const ReadPiece> pieces,
                                              std::uint64_t chunk_bytes,
                                              const ChunkCallback& on_chunk,
                                              const std::function<void()>& on_done) {
  auto read = std::make_shared<ExtentRead>();
  read->times_.queued = std::chrono::steady_clock::now();
  read->times_.done = read->times_.queued;
  // All are counted before the first is queued: chunks come in while others are still queued.
  for (const ReadPiece& piece : pieces) {
    read->pending_chunks_ += (piece.target.size() + chunk_bytes - 1) / chunk_bytes;
  }
  for (const ReadPiece& piece : pieces) {
    for (std::uint64_t at = 0; at < piece.target.size(); at += chunk_bytes) {
      const std::span<std::byte> chunk =
          piece.target.subspan(at, std::min(chunk_bytes, piece.target.size() - at));
      piece.engine->submit(
          {.file = piece.file,
           .offset_bytes = piece.offset_bytes + at,
           .target = chunk,
           .completion = [read, on_chunk, on_done, size_bytes = chunk.size()](Result<void> result) {
             if (result && on_chunk) {
               on_chunk(size_bytes);
             }
             if (read->finish_chunk(std::move(result)) && on_done) {
               on_done();
             }
           }});
    }
  }
  return read;
}

bool ExtentRead::finish_chunk(Result<void> result) {
  const std::lock_guard lock(mutex_);
  if (!result && !first_error_) {
    first_error_ = std::move(result).error();
  }
  --pending_chunks_;
  if (pending_chunks_ == 0) {
    times_.done = std::chrono::steady_clock::now();
    done_.notify_all();
  }
  return pending_chunks_ == 0;
}

Result<void> ExtentRead::wait(StopFlag stop) const {
  constexpr std::chrono::milliseconds kStopPause{50};  // Nobody notifies when a flag is set.
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return pending_chunks_ == 0; };
  if (stop == nullptr) {
    done_.wait(lock, is_done);
  }
  while (!done_.wait_for(lock, kStopPause, is_done)) {
    if (*stop) {
      return std::unexpected(Error(ErrorCode::kInterrupted, "reading was stopped"));
    }
  }
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
