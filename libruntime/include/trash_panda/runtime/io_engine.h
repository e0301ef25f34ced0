#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/base/log.h"

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
  /// For reports: "pread x4", "io_uring x4, registered buffers".
  [[nodiscard]] virtual std::string description() const = 0;
};

/// Which way reads take to the kernel.
enum class IoBackend {
  kAuto,   ///< io_uring, and where it is refused, pread; the log says so.
  kUring,  ///< io_uring or an error.
  kPread,  ///< Threads that call pread().
};

/// Reads "auto", "io_uring" or "pread".
///
/// @retval kUsage  Another text; the message names it.
Result<IoBackend> parse_io_backend(std::string_view text);

/// Most reads that an engine keeps in flight: far beyond what any drive gains from, and it keeps a
/// mistyped number from taking the process down.
inline constexpr std::uint32_t kReadDepthMax = 256;

struct IoOptions {
  IoBackend backend = IoBackend::kAuto;
  std::uint32_t depth = 4;  ///< Reads in flight, at least 1, at most kReadDepthMax.
  /// What will be read from, most of the time. With io_uring, the kernel then looks a file up once
  /// instead of for each read. They stay open for the life of the engine.
  std::vector<const File*> files = {};
  /// Where most reads will go. With io_uring the kernel then pins its pages once, where the limit
  /// of locked memory allows. It stays in place for the life of the engine.
  std::vector<std::span<std::byte>> memory = {};
  Logger log = silent_logger();
};

/// Makes the engine that `options.backend` asks for.
///
/// @retval kUsage   The depth is 0 or too large.
/// @retval kDevice  io_uring was asked for, and the system refuses it; the message says why.
/// @retval kFailed  The system refused a thread.
Result<std::unique_ptr<IoEngine>> make_io_engine(const IoOptions& options);

/// Reads with pread() on `thread_count` threads, begun in the order of submission.
///
/// @retval kUsage   `thread_count` is 0 or more than kReadDepthMax.
/// @retval kFailed  The system refused a thread.
Result<std::unique_ptr<IoEngine>> make_pread_engine(unsigned thread_count);

}  // namespace trash_panda::runtime
