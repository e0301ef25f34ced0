#include "throughput.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

#include "median.h"

namespace trash_panda::runtime {

namespace {

using WorkClock = std::chrono::steady_clock;

enum class StartSignal { kWait, kGo, kGiveUp };

struct WorkerResult {
  std::uint64_t bytes = 0;
  WorkClock::time_point end;
};

}  // namespace

std::optional<double> throughput(std::size_t thread_count, Seconds duration,
                                 const std::function<std::uint64_t(std::size_t)>& work) {
  std::vector<WorkerResult> results(thread_count);
  std::atomic<StartSignal> signal{StartSignal::kWait};
  WorkClock::time_point start;
  {
    std::vector<std::jthread> threads;
    const auto run = [&](std::size_t index) {
      signal.wait(StartSignal::kWait);
      if (signal == StartSignal::kGiveUp) {
        return;
      }
      const auto deadline = start + std::chrono::duration_cast<WorkClock::duration>(duration);
      do {
        results[index].bytes += work(index);
        results[index].end = WorkClock::now();
      } while (results[index].end < deadline);
    };
    // std::thread reports the system's refusal by an exception only.
    try {
      for (std::size_t index = 0; index < thread_count; ++index) {
        threads.emplace_back(run, index);
      }
      start = WorkClock::now();
      signal = StartSignal::kGo;
    } catch (const std::system_error&) {
      signal = StartSignal::kGiveUp;
    }
    signal.notify_all();
  }
  if (signal == StartSignal::kGiveUp) {
    return std::nullopt;
  }
  std::uint64_t bytes = 0;
  WorkClock::time_point end = start;
  for (const WorkerResult& result : results) {
    bytes += result.bytes;
    end = std::max(end, result.end);
  }
  return static_cast<double>(bytes) / std::max(Seconds(end - start).count(), 1e-9);
}

std::optional<std::uint64_t> median_throughput(
    std::size_t thread_count, const EffortPlan& effort, StopFlag stop,
    const std::function<std::uint64_t(std::size_t)>& work) {
  std::vector<double> rates;
  for (std::uint32_t round = 0; round <= effort.memory_rounds; ++round) {
    if (stop != nullptr && *stop) {
      return std::nullopt;
    }
    const std::optional<double> rate = throughput(thread_count, effort.memory, work);
    if (!rate) {
      return std::nullopt;
    }
    if (round != 0) {
      rates.push_back(*rate);
    }
  }
  return static_cast<std::uint64_t>(median(rates));
}

}  // namespace trash_panda::runtime
