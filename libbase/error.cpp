#include "trash_panda/base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>

namespace trash_panda {

namespace {

ErrorCode code_of_errno(int errno_value, ErrorCode otherwise) {
  switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kMissing;
    case EEXIST:
    case ENOSPC:
    case EDQUOT:
    case EROFS:
      return ErrorCode::kOutput;
    default:
      return otherwise;
  }
}

}  // namespace

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

Error Error::from_errno(int errno_value, std::string_view what, ErrorCode otherwise) {
  // generic_category().message() is thread-safe where strerror() is not.
  Error error(code_of_errno(errno_value, otherwise),
              fmt::format("{}: {}", what, std::generic_category().message(errno_value)));
  error.errno_value_ = errno_value;
  return error;
}

Error Error::with_reason(std::string_view reason) && {
  reason_ = reason;
  return std::move(*this);
}

Error Error::with_hint(std::string hint) && {
  hint_ = std::move(hint);
  return std::move(*this);
}

Error Error::with_shortage(Shortage shortage) && {
  shortage_ = shortage;
  return std::move(*this);
}

Error Error::with_context(std::string_view where) && {
  message_ = fmt::format("{}: {}", where, message_);
  return std::move(*this);
}

Error Error::with_code(ErrorCode code) && {
  code_ = code;
  return std::move(*this);
}

std::string Error::to_string() const {
  return hint_.empty() ? message_ : fmt::format("{}; {}", message_, hint_);
}

void assertion_failed(const char* condition, const char* file, int line) {
  // Nobody is left to be told: an assertion is the end, so it prints and ends the process itself.
  std::fprintf(stderr,  // tidy: allowed, assertion
               "trash-panda: internal error: %s is false (%s:%d); please report this\n", condition,
               file, line);
  std::abort();  // tidy: allowed, assertion
}

}  // namespace trash_panda
