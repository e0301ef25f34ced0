#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>

namespace trash_panda::fake_cuda {

/// Time that stands still while any thread of the process has something to do, and jumps to the
/// next end of a sleep when all of them sleep. So passes of seconds take milliseconds, and how busy
/// the machine is changes nothing.
///
/// Every wait of the code under test counts, as it is the system that says whether a thread sleeps.
class SimulatedTime {
 public:
  using Duration = std::chrono::nanoseconds;
  using Lock = std::unique_lock<std::mutex>;

  /// @param mutex    Guards this object, and is held by all callers.
  /// @param changed  Is notified when time moves on.
  SimulatedTime(std::mutex& mutex, std::condition_variable& changed)
      : mutex_(mutex), changed_(changed) {}
  SimulatedTime(const SimulatedTime&) = delete;
  SimulatedTime& operator=(const SimulatedTime&) = delete;
  ~SimulatedTime() = default;

  /// Begins at 0. Not called with the lock held, as is stop().
  void start();
  void stop();
  [[nodiscard]] Duration now() const { return now_; }
  void sleep_until(Lock& lock, Duration time);

 private:
  void run(const std::stop_token& stop);

  std::mutex& mutex_;
  std::condition_variable& changed_;
  Duration now_{0};
  std::multiset<Duration> sleepers_;
  std::jthread mover_;
};

}  // namespace trash_panda::fake_cuda
