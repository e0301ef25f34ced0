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

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFailed:
      return "failed";
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kMissing:
      return "missing";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kDoesNotFit:
      return "does_not_fit";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kOutput:
      return "output";
    case ErrorCode::kDevice:
      return "device";
    case ErrorCode::kStale:
      return "stale";
    case ErrorCode::kLocked:
      return "locked";
    case ErrorCode::kInterrupted:
      return "interrupted";
  }
  return "failed";
}

}  // namespace trash_panda::cli
