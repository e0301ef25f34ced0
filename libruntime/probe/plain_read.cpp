#include "plain_read.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "throughput.h"

namespace trash_panda::runtime {

namespace {

std::vector<PlainRange> cut_ranges(std::span<const PlainRange> ranges,
                                   std::uint64_t request_bytes) {
  std::vector<PlainRange> pieces;
  for (const PlainRange& range : ranges) {
    for (std::uint64_t at = 0; at < range.size_bytes; at += request_bytes) {
      pieces.push_back({.file = range.file,
                        .offset_bytes = range.offset_bytes + at,
                        .size_bytes = std::min(request_bytes, range.size_bytes - at)});
    }
  }
  return pieces;
}

/// The first failure of several threads.
class FirstFailure {
 public:
  void note(Result<void> result) {
    if (!result) {
      const std::lock_guard lock(mutex_);
      if (!error_) {
        error_ = std::move(result).error();
        has_failed_ = true;
      }
    }
  }
  [[nodiscard]] bool has_failed() const { return has_failed_; }
  /// When the threads have ended.
  [[nodiscard]] Result<void> result(StopFlag stop) {
    if (error_) {
      return std::unexpected(*std::move(error_));
    }
    if (stop != nullptr && *stop) {
      return std::unexpected(Error(ErrorCode::kInterrupted, "measuring was stopped"));
    }
    return {};
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> has_failed_ = false;
  std::optional<Error> error_;
};

Error threads_refused() {
  return {ErrorCode::kFailed, "the system refuses threads to read with"};
}

}  // namespace

Result<PlainRead> read_plainly(std::span<const PlainRange> ranges, const ReadSetting& setting,
                               std::uint64_t memory_bytes, StopFlag stop) {
  const std::vector<PlainRange> pieces = cut_ranges(ranges, setting.request_bytes);
  // Of each thread, which no other one writes to.
  const std::uint64_t place_count =
      std::max<std::uint64_t>(memory_bytes / setting.depth / setting.request_bytes, 1);
  TP_ASSIGN_OR_RETURN(const AlignedBuffer memory,
                      AlignedBuffer::create(setting.depth * place_count * setting.request_bytes));
  std::memset(memory.data(), 1, memory.size_bytes());
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> read_bytes = 0;
  FirstFailure failure;
  std::barrier start(static_cast<std::ptrdiff_t>(setting.depth) + 1);
  std::vector<std::jthread> threads;
  const auto read_pieces = [&](std::span<std::byte> own) {
    start.arrive_and_wait();
    std::uint64_t place = 0;
    for (std::size_t at = next++; at < pieces.size(); at = next++) {
      if (failure.has_failed() || (stop != nullptr && *stop)) {
        return;
      }
      const PlainRange& piece = pieces[at];
      const std::span<std::byte> buffer = own.subspan(place * setting.request_bytes);
      place = place + 1 == place_count ? 0 : place + 1;
      failure.note(piece.file->read_exact_at(piece.offset_bytes, buffer.first(piece.size_bytes)));
      read_bytes += piece.size_bytes;
    }
  };
  // std::thread reports the system's refusal by an exception only.
  try {
    for (unsigned thread = 0; thread < setting.depth; ++thread) {
      threads.emplace_back(read_pieces,
                           memory.span().subspan(thread * place_count * setting.request_bytes));
    }
  } catch (const std::system_error&) {
    next = pieces.size();  // Those that wait for the start find nothing to do.
    static_cast<void>(
        start.arrive(static_cast<std::ptrdiff_t>(setting.depth + 1 - threads.size())));
    return std::unexpected(threads_refused());
  }
  start.arrive_and_wait();
  const auto began = std::chrono::steady_clock::now();
  threads.clear();  // Joins them.
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
  TP_RETURN_IF_ERROR(failure.result(stop));
  return PlainRead{.seconds = elapsed.count(), .read_bytes = read_bytes};
}

Result<double> plain_read_rate(const File& file, ReadArea& area, const ReadSetting& setting,
                               const AlignedBuffer& memory, Seconds duration, StopFlag stop) {
  TP_ASSERT(setting.in_flight_bytes() <= memory.size_bytes());
  std::mutex area_mutex;
  FirstFailure failure;
  const auto read_one = [&](std::size_t thread) -> std::uint64_t {
    if (failure.has_failed() || (stop != nullptr && *stop)) {
      return 0;
    }
    std::uint64_t offset_bytes = 0;
    {
      const std::lock_guard lock(area_mutex);
      offset_bytes = area.take(setting.request_bytes);
    }
    failure.note(file.read_exact_at(
        offset_bytes,
        memory.span().subspan(thread * setting.request_bytes, setting.request_bytes)));
    return setting.request_bytes;
  };
  const std::optional<double> rate = throughput(setting.depth, duration, read_one);
  TP_RETURN_IF_ERROR(failure.result(stop));
  if (!rate) {
    return std::unexpected(threads_refused());
  }
  return *rate;
}

}  // namespace trash_panda::runtime
