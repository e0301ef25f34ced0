#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"

namespace trash_panda::runtime {

/// One positioned read. For a file opened with ReadMode::kDirect, offset, length and target are
/// aligned as it asks (File::direct_alignment()).
struct ReadRequest {
  const File* file;  ///< Stays open until the completion was called.
  std::uint64_t offset_bytes;
  std::span<std::byte> target;  ///< Stays valid until the completion was called.
  /// Called exactly once, from a thread of the engine; it must not block for long, nor destroy the
  /// engine. Gets success when every byte was read; else kCorrupt (reason "truncated") when the
  /// file ends before, kFailed when the system refused, kInterrupted when the engine was destroyed
  /// before the read began.
  std::function<void(Result<void>)> completion;
};

/// Reads from files into memory, many at a time.
///
/// Thread-safe. Completions come in any order. Destroying an engine waits for what it has begun
/// and completes the rest with kInterrupted.
class IoEngine {
 public:
  IoEngine() = default;
  IoEngine(const IoEngine&) = delete;
  IoEngine& operator=(const IoEngine&) = delete;
  virtual ~IoEngine() = default;

  /// Queues a read and returns at once. The queue is unbounded: the caller bounds it by the
  /// memory that it reads into.
  virtual void submit(ReadRequest request) = 0;
  /// For reports: "pread x4".
  [[nodiscard]] virtual std::string description() const = 0;
};

/// Reads with pread() on `thread_count` threads, begun in the order of submission.
///
/// @retval kUsage   `thread_count` is 0 or more than 256.
/// @retval kFailed  The system refused a thread.
Result<std::unique_ptr<IoEngine>> make_pread_engine(unsigned thread_count);

}  // namespace trash_panda::runtime
