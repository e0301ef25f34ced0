#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/runtime/io_engine.h"

namespace trash_panda::runtime {

/// One run of bytes to read.
struct ReadPiece {
  IoEngine* engine;
  const File* file;             ///< Open until wait() has returned.
  std::uint64_t offset_bytes;   ///< From the start of the file.
  std::span<std::byte> target;  ///< Left alone until wait() has returned.
};

/// One extent on its way into memory, read in chunks by one IoEngine or several.
///
/// Thread-safe. The engine keeps it alive until the last chunk has come in.
class ExtentRead {
 public:
  /// Called for each chunk that came in, from a thread of the engine.
  using ChunkCallback = std::function<void(std::uint64_t chunk_bytes)>;

  /// Queues the reads and returns at once.
  ///
  /// @param chunk_bytes  Of one read; the last of a piece may be shorter.
  /// @param on_chunk     May be empty.
  /// @param on_done      Called when wait() would return at once, from a thread of the engine; may
  ///                     be empty.
  static std::shared_ptr<ExtentRead> start(std::span<const ReadPiece> pieces,
                                           std::uint64_t chunk_bytes, const ChunkCallback& on_chunk,
                                           const std::function<void()>& on_done = {});

  /// Waits until no chunk is in flight any more, and says how it went: the first error, if any.
  ///
  /// @param stop  Once set, it is not waited any longer: kInterrupted, unless is_done().
  [[nodiscard]] Result<void> wait(StopFlag stop = nullptr) const;
  /// When it was queued and when the last chunk came in. After wait().
  struct Times {
    std::chrono::steady_clock::time_point queued;
    std::chrono::steady_clock::time_point done;
  };
  [[nodiscard]] Times times() const;
  /// Whether wait() would return at once.
  [[nodiscard]] bool is_done() const;

 private:
  /// @return Whether it was the last.
  bool finish_chunk(Result<void> result);

  mutable std::mutex mutex_;
  mutable std::condition_variable done_;
  std::uint64_t pending_chunks_ = 0;
  std::optional<Error> first_error_;
  Times times_ = {};
};

}  // namespace trash_panda::runtime
