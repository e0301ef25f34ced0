#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "trash_panda/base/log.h"

namespace trash_panda::python {

/// Carries a library's notes to a Python logger without a foreign thread ever taking the GIL: a
/// reading thread that waited for it could hang a shutdown, or deadlock with a caller that waits
/// for the read.
///
/// Thread-safe.
class LogQueue : public std::enable_shared_from_this<LogQueue> {
 public:
  /// A Logger that only queues. It may outlive this object's other owners.
  [[nodiscard]] Logger logger();
  /// Hands the queued lines to `logging.getLogger("trash_panda")`. Call with the GIL held.
  void flush();

 private:
  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_;
};

}  // namespace trash_panda::python
