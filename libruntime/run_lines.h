#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/format/tier.h"
#include "trash_panda/plan/plan.h"

#include "run_span.h"

namespace trash_panda::runtime {

struct RunBlock {
  std::string_view name;
  format::Tier tier = format::Tier::kDisk;
  std::uint64_t stored_bytes = 0;
};

/// What a run log begins with.
struct RunStart {
  std::filesystem::path pack;
  std::string io;      ///< As StreamStats::io_description.
  std::string device;  ///< As StreamStats::device_description.
  std::vector<RunBlock> blocks;
  std::optional<plan::Plan> plan;  ///< That the run follows.
  RunMemory memory;
  std::string memory_text;  ///< As MemoryLedger::snapshot().
};

/// The records of a run log as lines of JSON.
///
/// Not thread-safe. Records of spans are put together by hand, as there are thousands in a second.
/// @see schemas/run_log.schema.json
class RunLines {
 public:
  /// @param begin  What times count from.
  RunLines(RunClock::time_point begin, const RunStart& start);

  void add(const RunSpan& span);
  void add(const RunPass& pass);
  void add(const RunMemory& memory) { add_memory(memory, {}); }
  void add(const RunHome& home);
  /// Says that records are missing, which came faster than they could be written.
  void add_lost(std::uint64_t record_count);

  /// What has been added since it was last asked.
  [[nodiscard]] std::string take();

 private:
  struct Block {
    std::string name;  ///< As JSON, in its quotes.
    std::string_view tier;
    double compute_s = 0;  ///< Of the pass.
    bool is_computed = false;
  };

  [[nodiscard]] double seconds(RunClock::time_point time) const;
  void add_plan(const plan::Plan& plan);
  void add_memory(const RunMemory& memory, std::string_view text);

  RunClock::time_point start_;
  std::string lines_;
  std::vector<Block> blocks_;
  RunClock::time_point last_read_end_ = start_;
  RunClock::time_point last_copy_end_ = start_;
};

}  // namespace trash_panda::runtime
