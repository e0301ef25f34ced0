#include "pace.h"

#include <algorithm>
#include <thread>

namespace trash_panda::format {

namespace {

using PaceClock = std::chrono::steady_clock;

/// How long a request to stop may go unseen.
constexpr std::chrono::milliseconds kNap{50};
/// Time that a drive lost is made up for, but not more: the rate is to hold in every second.
constexpr std::chrono::milliseconds kCatchUpMax{250};

}  // namespace

Pace::Pace(std::uint64_t bytes_per_s_max, StopFlag stop)
    : bytes_per_s_max_(bytes_per_s_max), stop_(stop), due_(PaceClock::now()) {}

Result<void> Pace::wait_for(std::uint64_t bytes) {
  if (bytes_per_s_max_ == 0) {
    return {};
  }
  due_ = std::max(due_, PaceClock::now() - kCatchUpMax);
  due_ += std::chrono::duration_cast<PaceClock::duration>(std::chrono::duration<double>(
      static_cast<double>(bytes) / static_cast<double>(bytes_per_s_max_)));
  while (PaceClock::now() < due_) {
    if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) {
      return std::unexpected(Error(ErrorCode::kInterrupted, "interrupted"));
    }
    std::this_thread::sleep_until(std::min(due_, PaceClock::now() + kNap));
  }
  return {};
}

}  // namespace trash_panda::format
