#pragma once

#include "trash_panda/base/progress.h"

namespace trash_panda::cli {

/// While one lives, SIGINT, SIGTERM and SIGHUP set stop_flag() instead of ending the process, so
/// that a command can clean up. A second signal of the same kind ends it at once.
///
/// One at a time, made and destroyed on the main thread.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

/// True once a signal has arrived within an InterruptScope.
[[nodiscard]] StopFlag stop_flag();

/// Number of the signal that arrived; 0: none.
[[nodiscard]] int received_signal();

/// A reader that goes away (`| head`) and a file that grows over the limit (`ulimit -f`) shall be
/// seen as failed writes, not end the process: a repack must still clean up and say how to take on.
void ignore_signals_of_writes();

}  // namespace trash_panda::cli
