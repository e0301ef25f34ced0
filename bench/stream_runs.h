#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/runtime/streamer.h"

#include "probe/read_trial.h"
#include "synthetic_pack.h"

namespace trash_panda::bench {

/// What every run is made of.
struct RunSettings {
  SyntheticPack model;
  int round_count = 9;
  int work = 0;  ///< How often the computation of a block reads its weights.
  runtime::StreamOptions stream;
};

/// Seconds of each round, measured in turns.
struct RunTimes {
  std::vector<double> read_s;  ///< Plain direct read of what the disk blocks are, uncoded.
  std::vector<double>
      spread_read_s;               ///< The same into as much memory as the model streams through.
  std::vector<double> resident_s;  ///< The computation on weights in plain memory.
  std::vector<double> copy_s;      ///< memcpy() of the weights that are coded.
  std::vector<double> pass_s;
  std::vector<double> pass_cpu_s;
  std::vector<double> resident_cpu_s;
};

/// What passes took from the system, all rounds together.
struct PassUse {
  std::uint64_t read_bytes = 0;        ///< From drives, as /proc/self/io counts.
  std::uint64_t allocation_count = 0;  ///< Calls of operator new.
  std::int64_t heap_bytes = 0;         ///< What malloc has given out more than before.
  std::int64_t mapped_bytes = 0;       ///< How much the address space grew.
};

struct RunResult {
  RunTimes times;
  PassUse use;
  std::uint64_t weight_bytes = 0;       ///< Of all blocks, uncoded.
  std::uint64_t disk_weight_bytes = 0;  ///< Of the disk blocks.
  std::uint64_t ram_stored_bytes = 0;   ///< What the RAM tier takes.
  std::uint64_t ram_weight_bytes = 0;   ///< What it would take raw.
  std::string description;
};

/// Runs plain reads, computation in plain memory, copies and passes of a pack in turns.
Result<RunResult> run_rounds(const RunSettings& settings, const runtime::ReadSetting& plain);

/// The fastest of four settings for reading the model's disk blocks plainly; printed.
Result<runtime::ReadSetting> find_plain_setting(const SyntheticPack& model);

double median_of(std::vector<double> values);

}  // namespace trash_panda::bench
