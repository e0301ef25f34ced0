#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <variant>

#include "trash_panda/base/error.h"
#include "trash_panda/base/log.h"

#include "run_lines.h"
#include "run_span.h"
#include "span_ring.h"

namespace trash_panda::runtime {

/// Writes what a streamer does as one JSON object a line: first records of the run, its plan, its
/// blocks and its memory, then a record for each span, block and pass.
///
/// Adding costs a copy into a ring; a thread makes the lines and writes them, when a pass has ended
/// or the ring fills up. Where it can't keep up, records are left out, and one says how many. A log
/// that can't be written any more is given up with one warning: streaming goes on.
///
/// One thread at a time may add; destroying it writes the rest.
/// @see schemas/run_log.schema.json
class RunRecorder {
 public:
  /// @param path  Replaced, if it exists.
  /// @retval kOutput  It can't be written.
  /// @retval kFailed  The system refused a thread.
  static Result<std::unique_ptr<RunRecorder>> create(const std::filesystem::path& path,
                                                     const RunStart& start, Logger log);
  /// What create() makes; without a thread it writes nothing before its end.
  RunRecorder(std::filesystem::path path, const RunStart& start, Logger log);
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;
  ~RunRecorder();

  void add(const RunSpan& span) { push(span); }
  void add(const RunMemory& memory) { push(memory); }
  void add(const RunHome& home) { push(home); }
  /// Ends a pass, and has what was added written.
  void end_pass(const RunPass& pass);

 private:
  using Entry = std::variant<RunSpan, RunPass, RunMemory, RunHome>;

  void push(const Entry& entry);
  void wake();
  void write_until(const std::stop_token& stop);
  void write();

  const std::filesystem::path path_;
  const Logger log_;
  std::ofstream file_;
  RunLines lines_;
  SpanRing<Entry> ring_;
  std::atomic<std::uint64_t> lost_count_ = 0;
  std::uint64_t told_lost_count_ = 0;
  std::mutex mutex_;
  bool has_work_ = false;  ///< Guarded by `mutex_`.
  std::condition_variable_any work_;
  std::jthread writer_;  ///< Last member: ended before what it uses.
};

}  // namespace trash_panda::runtime
