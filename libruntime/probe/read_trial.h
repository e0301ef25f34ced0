#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/runtime/io_engine.h"

namespace trash_panda::runtime {

/// How a file is read: what a disk is measured with.
struct ReadSetting {
  std::uint32_t depth = 1;  ///< Requests in flight.
  std::uint64_t request_bytes = 0;

  [[nodiscard]] std::uint64_t in_flight_bytes() const { return depth * request_bytes; }
  /// "8 x 2 MiB".
  [[nodiscard]] std::string description() const;
  friend bool operator==(const ReadSetting&, const ReadSetting&) = default;
};

/// Part of a file that trials read, round and round, so that each takes up where the last ended:
/// bytes that were just read may wait in a cache of the drive or of the host.
class ReadArea {
 public:
  /// @param size_bytes   From the start of the file; at least one request of every trial.
  /// @param start_bytes  Where the first trial begins.
  ReadArea(std::uint64_t size_bytes, std::uint64_t start_bytes)
      : size_bytes_(size_bytes), next_bytes_(start_bytes) {}

  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  /// Offset of the next request, a multiple of its size.
  std::uint64_t take(std::uint64_t request_bytes);

 private:
  std::uint64_t size_bytes_;
  std::uint64_t next_bytes_;
};

/// Reads one file in several settings, through the engine that streaming uses.
///
/// Not thread-safe. Holds `in_flight_bytes_max` of memory and the engine.
class ReadTrials {
 public:
  /// @param backend    As StreamOptions::io.
  /// @param depth_max  Of the trials.
  static Result<ReadTrials> create(IoBackend backend, std::uint32_t depth_max,
                                   std::uint64_t in_flight_bytes_max);

  /// Reads for about `duration`, at least one request per place of the queue.
  ///
  /// @param setting  Its depth and bytes in flight are no more than create() was told.
  /// @return Bytes per second, from the first request to the last completion.
  /// @retval kInterrupted  `stop` was set.
  Result<double> read_rate(const File& file, ReadArea& area, const ReadSetting& setting,
                           std::chrono::duration<double> duration, StopFlag stop);
  /// "io_uring" or "pread".
  [[nodiscard]] std::string engine_name() const;
  /// Where trials read to; free for others while none runs.
  [[nodiscard]] const AlignedBuffer& memory() const { return buffer_; }

 private:
  std::uint32_t depth_max_ = 0;
  AlignedBuffer buffer_;
  std::unique_ptr<IoEngine> engine_;  ///< Destroyed before the memory that it knows.
};

/// Times single small reads at random places, one after the other.
///
/// @return Nanoseconds of each, sorted; at least one.
Result<std::vector<std::uint64_t>> read_latencies_ns(const File& file, std::uint64_t area_bytes,
                                                     std::chrono::duration<double> duration,
                                                     StopFlag stop);

}  // namespace trash_panda::runtime
