#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "tensor_maker.h"

namespace trash_panda::runtime {

/// Threads that make tensors beside whoever waits for them.
///
/// Thread-safe. Threads end with it, and what was given to them is done by then, or left to who
/// finishes it.
class TensorWorkers {
 public:
  /// Where the system refuses threads, there are fewer, or none.
  ///
  /// @param on_call  Run by one of the threads after call(); calls before it begins are one.
  TensorWorkers(std::size_t thread_count, std::function<void()> on_call);
  TensorWorkers(const TensorWorkers&) = delete;
  TensorWorkers& operator=(const TensorWorkers&) = delete;
  ~TensorWorkers();

  [[nodiscard]] std::size_t thread_count() const { return thread_count_; }
  /// Lets the threads work at it, after what they were given before. Without threads nothing is
  /// done.
  ///
  /// @param maker  Has begun, and outlives the workers.
  void help(TensorMaker& maker);
  void call();
  /// Ends the threads. Later calls do nothing.
  void stop();

 private:
  struct Entry {
    TensorMaker* maker;
    std::uint64_t ticket;  ///< The same maker may come again, with other tensors.
  };

  void run(const std::stop_token& stop);

  const std::function<void()> on_call_;
  std::mutex mutex_;
  std::condition_variable_any work_;
  std::vector<Entry> queue_;  ///< First in, first out.
  std::uint64_t ticket_ = 0;
  bool is_called_ = false;
  std::vector<std::jthread> threads_;
  std::size_t thread_count_ = 0;
};

}  // namespace trash_panda::runtime
