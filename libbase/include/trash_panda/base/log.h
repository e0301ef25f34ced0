#pragma once

#include <functional>
#include <string_view>

namespace trash_panda {

enum class LogLevel { kDebug, kInfo, kWarning };

/// Where a library's notes go: the application decides. Libraries never print themselves.
///
/// A function object and not an interface, so that Python and tests pass a closure. Called from
/// any thread, one line a call, without a final newline; it must not throw.
using Logger = std::function<void(LogLevel level, std::string_view line)>;

/// A Logger that drops every line: the default everywhere.
inline Logger silent_logger() {
  return [](LogLevel, std::string_view) {};
}

}  // namespace trash_panda
