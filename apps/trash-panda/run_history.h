#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"

namespace trash_panda::cli {

struct HistorySpan {
  std::string kind;  ///< "read", "wait", "decode", "expand", "compute", or what later versions add.
  std::uint64_t pass = 0;
  std::string block;
  double begin_s = 0;  ///< Since the run began.
  double end_s = 0;
  std::uint64_t size_bytes = 0;
};

struct HistoryPass {
  std::uint64_t pass = 0;
  double begin_s = 0;
  double end_s = 0;
  std::uint64_t read_bytes_ram = 0;
  std::uint64_t read_bytes_disk = 0;
};

/// What a run log says happened when. @see schemas/run_log.schema.json
struct RunHistory {
  std::string pack;
  std::string io;
  std::uint64_t block_count = 0;
  std::uint64_t disk_block_count = 0;
  std::uint64_t booked_bytes = 0;
  std::vector<HistorySpan> spans;
  std::vector<HistoryPass> passes;
};

/// Reads a run log: one JSON object a line. Types that are not known are passed over.
///
/// @param where  Name of the file, for messages, which give the line.
/// @retval kCorrupt  A line is no such object, or a record misses a member or has one of a wrong
///                   type, or there is no pass.
Result<RunHistory> parse_run_history(std::string_view text, std::string_view where);

/// Tables for a terminal: each pass and where its time went; the blocks that were waited for most.
[[nodiscard]] std::string history_summary(const RunHistory& history, std::string_view file);

/// The same as a document, "trash-panda/report/1". @see schemas/report.schema.json
[[nodiscard]] std::string history_json(const RunHistory& history, std::string_view file);

/// The run as a trace that Perfetto and chrome://tracing draw: a lane for each kind of span.
/// @see Trace Event Format, complete events ("X").
[[nodiscard]] std::string history_trace(const RunHistory& history);

}  // namespace trash_panda::cli
