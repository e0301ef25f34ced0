#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/plan.h"

namespace trash_panda::cli {

/// Longest run log that is read: some million records.
inline constexpr std::uint64_t kRunLogBytesMax = std::uint64_t{256} << 20U;

/// What a run log says of the computation of its blocks. @see schemas/run_log.schema.json
struct RunLog {
  /// By name of the block, then by number of the pass, which count from 1.
  std::map<std::string, std::map<std::uint64_t, double>> compute_s;
};

/// Reads a run log: one JSON object a line. Records of other types than "block" are passed over,
/// as later versions add some.
///
/// @param where  Name of the file, for messages, which give the line.
/// @retval kCorrupt  A line is no such object, a record misses a member or has one of a wrong type,
///                   or a block is computed twice in a pass.
Result<RunLog> parse_run_log(std::string_view text, std::string_view where);

/// Typical time of each block's computation: the median over the passes after the first, which
/// waits for memory to be allocated and kernels to be chosen.
///
/// @return By name; blocks that only the first pass has are left out.
[[nodiscard]] std::map<std::string, double> median_compute_s(const RunLog& log);

/// The medians in the order of a model's blocks.
/// @retval kCorrupt  No pass but the first. @retval kStale  The log is of other blocks.
Result<std::vector<double>> block_profile(const RunLog& log,
                                          const std::vector<plan::PlannedBlock>& blocks,
                                          std::string_view where);

}  // namespace trash_panda::cli
