#include "read_trial.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

namespace trash_panda::runtime {

namespace {

using TrialClock = std::chrono::steady_clock;

/// What the latency is that of: a page, the smallest read that every drive does in one go.
constexpr std::uint64_t kLatencyReadBytes = 4 * kKiB;
constexpr std::size_t kLatencyReadsMax = 20'000;

Error measuring_stopped() {
  return {ErrorCode::kInterrupted, "measuring was stopped"};
}

bool is_stopped(StopFlag stop) {
  return stop != nullptr && *stop;
}

/// One trial: every completion queues the next request, as a queue that never runs dry does.
class Trial {
 public:
  Trial(const File& file, ReadArea& area, const ReadSetting& setting, IoEngine& engine,
        TrialClock::time_point deadline, StopFlag stop)
      : file_(file),
        area_(area),
        setting_(setting),
        engine_(engine),
        deadline_(deadline),
        stop_(stop) {}

  Result<double> run(std::span<std::byte> memory) {
    const auto start = TrialClock::now();
    {
      const std::scoped_lock lock(mutex_);
      for (std::uint32_t place = 0; place < setting_.depth; ++place) {
        submit(memory.subspan(place * setting_.request_bytes, setting_.request_bytes));
      }
    }
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return in_flight_ == 0; });
    if (error_) {
      return std::unexpected(*std::move(error_));
    }
    if (is_stopped(stop_)) {
      return std::unexpected(measuring_stopped());
    }
    const std::chrono::duration<double> elapsed = last_ - start;
    return static_cast<double>(read_bytes_) / std::max(elapsed.count(), 1e-9);
  }

 private:
  /// With the mutex held.
  void submit(std::span<std::byte> target) {
    ++in_flight_;
    engine_.submit({.file = &file_,
                    .offset_bytes = area_.take(setting_.request_bytes),
                    .target = target,
                    .completion = [this, target](Result<void> result) {
                      complete(target, std::move(result));
                    }});
  }

  void complete(std::span<std::byte> target, Result<void> result) {
    const auto now = TrialClock::now();
    const std::scoped_lock lock(mutex_);
    --in_flight_;
    last_ = now;
    if (result) {
      read_bytes_ += target.size();
    } else if (!error_) {
      error_ = std::move(result).error();
    }
    if (now < deadline_ && !error_ && !is_stopped(stop_)) {
      submit(target);
    } else if (in_flight_ == 0) {
      done_.notify_one();  // Under the lock: the waiter may destroy this object right after.
    }
  }

  const File& file_;
  ReadArea& area_;
  const ReadSetting setting_;
  IoEngine& engine_;
  const TrialClock::time_point deadline_;
  const StopFlag stop_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::uint32_t in_flight_ = 0;
  std::uint64_t read_bytes_ = 0;
  TrialClock::time_point last_;
  std::optional<Error> error_;
};

}  // namespace

std::string ReadSetting::description() const {
  return fmt::format("{} x {} MiB", depth, request_bytes / kMiB);
}

std::uint64_t ReadArea::take(std::uint64_t request_bytes) {
  TP_ASSERT(request_bytes <= size_bytes_);
  std::uint64_t offset_bytes = next_bytes_ / request_bytes * request_bytes;
  if (offset_bytes > size_bytes_ - request_bytes) {
    offset_bytes = 0;
  }
  next_bytes_ = offset_bytes + request_bytes;
  return offset_bytes;
}

Result<ReadTrials> ReadTrials::create(IoBackend backend, std::uint32_t depth_max,
                                      std::uint64_t in_flight_bytes_max) {
  ReadTrials trials;
  trials.depth_max_ = depth_max;
  TP_ASSIGN_OR_RETURN(trials.buffer_, AlignedBuffer::create(in_flight_bytes_max));
  // Touched once: page faults are no part of a disk's speed.
  std::memset(trials.buffer_.data(), 1, trials.buffer_.size_bytes());
  TP_ASSIGN_OR_RETURN(
      trials.engine_,
      make_io_engine({.backend = backend, .depth = depth_max, .memory = {trials.buffer_.span()}}));
  return trials;
}

std::string ReadTrials::engine_name() const {
  const std::string description = engine_->description();  // "io_uring x4, registered buffers".
  return description.substr(0, description.find(' '));
}

Result<double> ReadTrials::read_rate(const File& file, ReadArea& area, const ReadSetting& setting,
                                     std::chrono::duration<double> duration, StopFlag stop) {
  TP_ASSERT(setting.depth <= depth_max_ && setting.in_flight_bytes() <= buffer_.size_bytes());
  if (is_stopped(stop)) {
    return std::unexpected(measuring_stopped());
  }
  const auto deadline =
      TrialClock::now() + std::chrono::duration_cast<TrialClock::duration>(duration);
  return Trial(file, area, setting, *engine_, deadline, stop).run(buffer_.span());
}

Result<std::vector<std::uint64_t>> read_latencies_ns(const File& file, std::uint64_t area_bytes,
                                                     std::chrono::duration<double> duration,
                                                     StopFlag stop) {
  TP_ASSERT(area_bytes >= kLatencyReadBytes);
  TP_ASSIGN_OR_RETURN(const AlignedBuffer page, AlignedBuffer::create(kLatencyReadBytes));
  std::mt19937_64 generator(std::random_device{}());
  std::uniform_int_distribution<std::uint64_t> pages(0, area_bytes / kLatencyReadBytes - 1);
  const auto deadline =
      TrialClock::now() + std::chrono::duration_cast<TrialClock::duration>(duration);
  std::vector<std::uint64_t> latencies_ns;
  do {
    if (is_stopped(stop)) {
      return std::unexpected(measuring_stopped());
    }
    const auto start = TrialClock::now();
    TP_RETURN_IF_ERROR(file.read_exact_at(pages(generator) * kLatencyReadBytes,
                                          page.span().first(kLatencyReadBytes)));
    const std::chrono::nanoseconds elapsed = TrialClock::now() - start;
    latencies_ns.push_back(static_cast<std::uint64_t>(elapsed.count()));
  } while (TrialClock::now() < deadline && latencies_ns.size() < kLatencyReadsMax);
  std::ranges::sort(latencies_ns);
  return latencies_ns;
}

}  // namespace trash_panda::runtime
