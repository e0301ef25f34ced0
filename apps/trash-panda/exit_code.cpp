#include "exit_code.h"

#include <csignal>

#include "signals.h"

namespace trash_panda::cli {

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFailed:
      return 1;
    case ErrorCode::kUsage:
      return 2;
    case ErrorCode::kMissing:
      return 3;
    case ErrorCode::kCorrupt:
    case ErrorCode::kUnsupported:
      return 4;
    case ErrorCode::kDoesNotFit:
      return 5;
    case ErrorCode::kMismatch:
      return 6;
    case ErrorCode::kOutput:
      return 7;
    case ErrorCode::kDevice:
      return 8;
    case ErrorCode::kStale:
      return 10;
    case ErrorCode::kLocked:
      return 11;
    case ErrorCode::kInterrupted:
      return 128 + (received_signal() == 0 ? SIGINT : received_signal());
  }
  return 1;
}

}  // namespace trash_panda::cli
