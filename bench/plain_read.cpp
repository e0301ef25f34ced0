#include "plain_read.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "trash_panda/base/aligned_buffer.h"

namespace trash_panda::bench {

namespace {

std::vector<PlainRange> cut(std::span<const PlainRange> ranges, std::uint64_t request_bytes) {
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

}  // namespace

Result<double> read_plainly(std::span<const PlainRange> ranges, const PlainSetting& setting,
                            std::uint64_t memory_bytes) {
  const std::vector<PlainRange> pieces = cut(ranges, setting.request_bytes);
  // Of each thread, which no other one writes to.
  const std::uint64_t place_count =
      std::max<std::uint64_t>(memory_bytes / setting.depth / setting.request_bytes, 1);
  TP_ASSIGN_OR_RETURN(const AlignedBuffer memory,
                      AlignedBuffer::create(setting.depth * place_count * setting.request_bytes));
  std::memset(memory.data(), 1, memory.size_bytes());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::optional<Error> failure;
  std::barrier start(static_cast<std::ptrdiff_t>(setting.depth) + 1);
  std::vector<std::jthread> threads;
  for (unsigned thread = 0; thread < setting.depth; ++thread) {
    threads.emplace_back(
        [&, own = memory.span().subspan(thread * place_count * setting.request_bytes)] {
          start.arrive_and_wait();
          std::uint64_t place = 0;
          for (std::size_t at = next++; at < pieces.size(); at = next++) {
            const PlainRange& piece = pieces[at];
            const std::span<std::byte> buffer = own.subspan(place * setting.request_bytes);
            place = place + 1 == place_count ? 0 : place + 1;
            Result<void> read =
                piece.file->read_exact_at(piece.offset_bytes, buffer.first(piece.size_bytes));
            if (!read) {
              const std::lock_guard lock(mutex);
              failure = std::move(read).error();
            }
          }
        });
  }
  start.arrive_and_wait();
  const auto began = std::chrono::steady_clock::now();
  threads.clear();  // Joins them.
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
  if (failure) {
    return std::unexpected(*std::move(failure));
  }
  return elapsed.count();
}

}  // namespace trash_panda::bench
