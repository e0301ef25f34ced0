#include "log_queue.h"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace trash_panda::python {
namespace {

// The numbers of Python's module logging.
int python_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 10;
    case LogLevel::kInfo:
      return 20;
    case LogLevel::kWarning:
      return 30;
  }
  return 30;
}

}  // namespace

Logger LogQueue::logger() {
  return [self = shared_from_this()](LogLevel level, std::string_view line) {
    const std::scoped_lock lock(self->mutex_);
    self->lines_.emplace_back(level, std::string(line));
  };
}

void LogQueue::flush() {
  std::vector<std::pair<LogLevel, std::string>> lines;
  {
    const std::scoped_lock lock(mutex_);
    lines.swap(lines_);
  }
  if (lines.empty()) {
    return;
  }
  const nb::object log =
      nb::module_::import_("logging").attr("getLogger")("trash_panda").attr("log");
  for (const auto& [level, line] : lines) {
    log(python_level(level), "%s", line);
  }
}

}  // namespace trash_panda::python
