#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trash_panda/base/error.h"

namespace trash_panda::plan {

/// One stage as a file names it: what plan_stages() wants, before the model is looked for.
struct StageEntry {
  std::string name;   ///< Of letters, digits, '-', '_' and '.': it names the stage's plan file.
  std::string model;  ///< As MODEL on the command line.
  std::uint64_t step_count = 1;
  bool stays_loaded = false;
  /// Options of `plan` for this stage, in the order of the file: key and value as typed; those with
  /// several values come several times.
  std::vector<std::pair<std::string, std::string>> options;

  bool operator==(const StageEntry&) const = default;
};

/// Reads a pipeline: `[[stage]]` tables with name, model, steps (default 1), keep (default false:
/// gives its memory back), and options.
///
/// @param where         Name of the file, for messages, which give line and column.
/// @param option_names  Keys that are options.
/// @retval kCorrupt  Not TOML, no stage, a key that is missing, unknown or of a wrong type, or two
///                   stages of one name.
Result<std::vector<StageEntry>> parse_stages_toml(std::string_view text, std::string_view where,
                                                  std::span<const std::string_view> option_names);

}  // namespace trash_panda::plan
