#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trash_panda/base/error.h"

namespace trash_panda::cli {

struct HistorySpan {
  std::string kind;   ///< "read", "decode", "copy", "expand", "compute", "wait", or a later one.
  std::string cause;  ///< Of a wait: the kind that was waited for; empty: the log does not say.
  std::uint64_t pass = 0;
  std::string block;
  double begin_s = 0;  ///< Since the run began.
  double end_s = 0;
  std::uint64_t size_bytes = 0;

  [[nodiscard]] double duration_s() const { return end_s - begin_s; }
};

struct HistoryPass {
  std::uint64_t pass = 0;
  double begin_s = 0;
  double end_s = 0;
  std::uint64_t read_bytes_ram = 0;
  std::uint64_t read_bytes_disk = 0;

  [[nodiscard]] double duration_s() const { return end_s - begin_s; }
};

struct HistoryBlock {
  std::string name;
  std::string tier;
  std::uint64_t stored_bytes = 0;
};

struct HistoryMemory {
  double at_s = 0;
  std::uint64_t booked_bytes = 0;
  std::uint64_t base_bytes = 0;
  std::uint64_t ram_tier_bytes = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t expanded_bytes = 0;
  std::uint64_t device_bytes = 0;
  std::uint64_t process_bytes = 0;
};

/// A block that streamed stays in RAM from its next read on, or a block gave its memory back.
struct HistoryHome {
  double at_s = 0;
  std::string block;
  bool stays = false;
};

/// A block in the pass that the plan predicts, in seconds from the start of the pass.
struct PlannedTimes {
  using Range = std::pair<double, double>;

  std::string name;
  std::optional<Range> read_s;
  std::optional<Range> decode_s;
  std::optional<Range> copy_s;
  Range compute_s;
  double stall_s = 0;
  std::string stalled_by;
};

struct HistoryPlan {
  double pass_s = 0;
  double bound_s = 0;
  std::string limiting;
  double stall_s = 0;
  double first_pass_s = 0;
  std::vector<PlannedTimes> blocks;
};

/// What a run log says happened when. @see schemas/run_log.schema.json
struct RunHistory {
  std::string pack;
  std::string io;
  std::string device;               ///< Empty: the log does not say.
  std::optional<HistoryPlan> plan;  ///< Where the pack's plan predicts something.
  std::vector<HistoryBlock> blocks;
  std::vector<HistoryMemory> memory;
  std::vector<HistorySpan> spans;
  std::vector<HistoryHome> homes;
  std::vector<HistoryPass> passes;
  std::uint64_t lost_count = 0;  ///< Records that could not be written.

  [[nodiscard]] std::uint64_t block_count(std::string_view tier) const;
};

/// Reads a run log: one JSON object a line. Types that are not known are passed over.
///
/// @param where  Name of the file, for messages, which give the line.
/// @retval kCorrupt  A line is no such object, or a record misses a member or has one of a wrong
///                   type.
Result<RunHistory> parse_run_history(std::string_view text, std::string_view where);

/// Tables for a terminal: each pass and where its time went; the typical times of each block; the
/// blocks that were waited for most. Of many passes and blocks those in the middle are left out.
///
/// @param history  Has a pass, as for all below.
[[nodiscard]] std::string history_summary(const RunHistory& history, std::string_view file);

/// The same as a document, "trash-panda/report/1". @see schemas/report.schema.json
[[nodiscard]] std::string history_json(const RunHistory& history, std::string_view file);

/// The run as a trace that Perfetto and chrome://tracing draw: a lane for each kind of span.
/// @see Trace Event Format, complete events ("X").
[[nodiscard]] std::string history_trace(const RunHistory& history);

/// The run as a page for a browser, complete in itself: report_page.html with the run's data.
[[nodiscard]] std::string history_page(const RunHistory& history, std::string_view file);

}  // namespace trash_panda::cli
