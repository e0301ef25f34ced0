#pragma once

#include <cstdint>

namespace trash_panda::testing {

/// What a system call that fails does.
enum class CallFault {
  kNone,
  kNoSpace,      ///< ENOSPC.
  kIo,           ///< EIO.
  kInterrupted,  ///< EINTR.
  kShort,        ///< Reads and writes do half of it; other calls are as always.
};

/// How a filesystem treats O_DIRECT.
enum class DirectFault {
  kNone,
  kRefusedByOpen,  ///< EINVAL.
  kRefusedLater,   ///< EINVAL when reading and writing.
};

/// Counts this program's calls of open(), pread(), pwrite(), fdatasync(), fsync(), ftruncate(),
/// close(), mkdir() and renameat2(), and makes them fail while one lives. Syncs do nothing, which
/// saves most of the time: no test here loses power.
///
/// One at a time.
class FaultyCalls {
 public:
  static constexpr std::uint64_t kNever = UINT64_MAX;

  /// Fails call `call`, counted from 0; it alone.
  FaultyCalls(CallFault fault, std::uint64_t call);
  /// Fails every other call.
  explicit FaultyCalls(CallFault fault);
  explicit FaultyCalls(DirectFault fault);
  FaultyCalls(const FaultyCalls&) = delete;
  FaultyCalls& operator=(const FaultyCalls&) = delete;
  ~FaultyCalls();

  /// Calls so far.
  [[nodiscard]] static std::uint64_t count();
  /// Bytes that were read so far.
  [[nodiscard]] static std::uint64_t read_bytes();
};

}  // namespace trash_panda::testing
