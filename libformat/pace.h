#pragma once

#include <chrono>
#include <cstdint>

#include "trash_panda/base/error.h"
#include "trash_panda/base/progress.h"

namespace trash_panda::format {

/// Keeps an operation to a rate, by waiting.
class Pace {
 public:
  /// @param bytes_per_s_max  0: never waits.
  Pace(std::uint64_t bytes_per_s_max, StopFlag stop);

  /// Waits until `bytes` more are due.
  /// @retval kInterrupted  `stop` was set meanwhile.
  Result<void> wait_for(std::uint64_t bytes);

 private:
  std::uint64_t bytes_per_s_max_;
  StopFlag stop_;
  std::chrono::steady_clock::time_point due_;
};

}  // namespace trash_panda::format
