#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/log.h"
#include "trash_panda/format/manifest.h"

namespace trash_panda::runtime {

/// What streaming spends time on.
enum class SpanKind {
  kRead,     ///< An extent on its way from the drive.
  kWait,     ///< The caller, for a read, or for tensors that are made ahead.
  kDecode,   ///< Making tensors some of which are coded: beside the block before, or in the caller.
  kExpand,   ///< Checking, and making tensors that are not.
  kCompute,  ///< The caller, while it holds the block.
};

using RunClock = std::chrono::steady_clock;

struct RunSpan {
  SpanKind kind;
  std::uint64_t pass;  ///< Of the use; from 1. A read may begin in the pass before.
  std::string_view block;
  RunClock::time_point begin;
  RunClock::time_point end;
  std::uint64_t size_bytes = 0;  ///< Read, or made.
};

struct RunPass {
  std::uint64_t pass;
  RunClock::time_point begin;  ///< Its first block was asked for.
  RunClock::time_point end;    ///< Its last block was given back.
  std::uint64_t read_bytes_ram;
  std::uint64_t read_bytes_disk;
};

struct RunBlock {
  std::string_view name;
  format::Tier tier;
  std::uint64_t stored_bytes;
};

/// Writes what a streamer does as one JSON object a line: first records of the run, its blocks and
/// its memory, then a record for each span, block and pass.
///
/// Not thread-safe. Records are kept until their pass has ended, so that no file is written while
/// someone waits. A log that can't be written any more is given up with one warning: streaming goes
/// on.
/// @see schemas/run_log.schema.json
class RunRecorder {
 public:
  /// @param path  Replaced, if it exists.
  /// @retval kOutput  It can't be written.
  static Result<RunRecorder> create(const std::filesystem::path& path, Logger log);

  /// @param io  As StreamStats::io_description.
  void add_run(const std::filesystem::path& pack, std::string_view io);
  void add_blocks(const std::vector<RunBlock>& blocks);
  void add_memory(std::uint64_t booked_bytes, std::string_view snapshot);
  void add(const RunSpan& span);
  /// Ends a pass, and writes what was added.
  void end_pass(const RunPass& pass);

 private:
  [[nodiscard]] double seconds(RunClock::time_point time) const;
  void write();

  std::filesystem::path path_;
  Logger log_;
  std::ofstream file_;
  RunClock::time_point start_ = RunClock::now();
  std::string lines_;
  RunClock::time_point last_read_end_ = start_;
  std::map<std::string, double, std::less<>> compute_s_;  ///< Of the pass, by block.
};

}  // namespace trash_panda::runtime
