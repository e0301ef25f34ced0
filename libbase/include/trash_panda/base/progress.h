#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace trash_panda {

/// How far a long operation is, in bytes.
struct Progress {
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t skipped_bytes = 0;  ///< Of `done_bytes`, what an earlier run did.
};

/// Called now and then from the thread that runs the operation; must not throw.
using ProgressCallback = std::function<void(const Progress&)>;

/// Set by a signal handler or another thread to end an operation with kInterrupted. Null: never.
using StopFlag = const std::atomic<bool>*;

}  // namespace trash_panda
