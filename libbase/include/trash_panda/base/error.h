#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>

namespace trash_panda {

/// What a caller can do about a failure. Each code maps to one exit code of the command line and
/// one Python exception class; a new code needs a reaction that none of these stands for.
enum class ErrorCode {
  kFailed,       ///< Anything else, such as a read error of the drive.
  kUsage,        ///< The request itself is wrong: a flag, a selector, a size.
  kMissing,      ///< An input does not exist.
  kCorrupt,      ///< An input is damaged or breaks its format's rules.
  kUnsupported,  ///< An input is sound, but of a kind that is not handled.
  kDoesNotFit,   ///< The budgets are too small for what was asked.
  kMismatch,     ///< Bytes differ from their checksum or from the source.
  kOutput,       ///< The output exists, or can't be written, or there is no space.
  kDevice,       ///< A device or a measurement is not available.
  kStale,        ///< A plan or pack was made for another checkpoint.
  kLocked,       ///< Another process holds the output.
  kInterrupted,  ///< The user asked to stop.
};

/// Name of a code, such as "does_not_fit": what `--json` failures carry where no finer reason is
/// known, and what the Python package maps to exception classes.
[[nodiscard]] std::string_view error_code_name(ErrorCode code);

/// The numbers of a kDoesNotFit: what would have been needed, and what there is in all.
struct Shortage {
  std::uint64_t needed_bytes;
  std::uint64_t budget_bytes;
};

/// A failure: what was tried, on what, with numbers and units, why, and what helps.
///
/// The message is one sentence without a final full stop. `reason` is a stable machine-readable
/// class (such as "truncated" or "scale_shape"), empty when none is defined; `hint` says what to
/// do next, empty when there is nothing to say.
class Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  /// Makes an error from an errno value: `<what>: <text of errno>`.
  ///
  /// @param what  What was tried and on what, e.g. "can't open /data/model.safetensors".
  /// @return kMissing for ENOENT and ENOTDIR; kOutput for EEXIST, ENOSPC, EDQUOT and EROFS;
  ///         else `otherwise`.
  static Error from_errno(int errno_value, std::string_view what,
                          ErrorCode otherwise = ErrorCode::kFailed);

  [[nodiscard]] ErrorCode code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] std::string_view reason() const { return reason_; }
  [[nodiscard]] const std::string& hint() const { return hint_; }
  [[nodiscard]] int errno_value() const { return errno_value_; }
  /// Nothing where the failure is none of budgets, or there is no number.
  [[nodiscard]] const std::optional<Shortage>& shortage() const { return shortage_; }

  /// Sets the machine-readable class. @param reason  A string literal.
  Error with_reason(std::string_view reason) &&;
  Error with_hint(std::string hint) &&;
  Error with_shortage(Shortage shortage) &&;
  /// Puts `where` and a colon before the message, outermost context first.
  Error with_context(std::string_view where) &&;
  /// Replaces the code, for a caller that knows better what the failure means.
  Error with_code(ErrorCode code) &&;

  /// Message and hint in one line, as the command line prints them.
  [[nodiscard]] std::string to_string() const;

 private:
  ErrorCode code_;
  std::string message_;
  std::string_view reason_;
  std::string hint_;
  int errno_value_ = 0;
  std::optional<Shortage> shortage_;
};

/// A value or the Error that says why there is none. Never ignore one.
template <class T>
using Result = std::expected<T, Error>;

/// Prints where and why on stderr and aborts. For TP_ASSERT only.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace trash_panda

/// Checks our own logic, in every build. What comes from files, flags or the operating system is
/// validated with errors instead and never reaches this.
#define TP_ASSERT(condition)                           \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::trash_panda::assertion_failed(#condition, __FILE__, __LINE__))

/// Evaluates `expression`, a Result<void>, and returns its error from the enclosing function.
#define TP_RETURN_IF_ERROR(expression)                            \
  do {                                                            \
    if (auto tp_result = (expression); !tp_result) [[unlikely]] { \
      return std::unexpected(std::move(tp_result).error());       \
    }                                                             \
  } while (false)

#define TP_CONCAT_(a, b) a##b
#define TP_CONCAT(a, b) TP_CONCAT_(a, b)
/// `TP_ASSIGN_OR_RETURN(auto file, File::open(path));` declares `file` or returns the error.
#define TP_ASSIGN_OR_RETURN(declaration, expression)                            \
  auto TP_CONCAT(tp_result_, __LINE__) = (expression);                          \
  if (!TP_CONCAT(tp_result_, __LINE__)) [[unlikely]] {                          \
    return std::unexpected(std::move(TP_CONCAT(tp_result_, __LINE__)).error()); \
  }                                                                             \
  declaration = *std::move(TP_CONCAT(tp_result_, __LINE__)) /* NOLINT(*-parentheses) */
