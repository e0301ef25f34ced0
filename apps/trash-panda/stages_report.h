#pragma once

#include <string>
#include <vector>

#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/stages.h"
#include "trash_panda/plan/stages_toml.h"

#include "console.h"

namespace trash_panda::cli {

/// The plans of a pipeline with what they were made from, for its reports.
struct StagesReport {
  std::string file;  ///< Of --stages, as typed.
  const std::vector<plan::StageEntry>* entries = nullptr;
  const plan::Hardware* hardware = nullptr;
  const std::vector<plan::PlannedStage>* stages = nullptr;
  std::string output;  ///< Folder of the plan files; empty: none were written.
};

/// What `plan --stages` says to people: one line a stage, what is loaded ahead, and the peak.
[[nodiscard]] std::string stages_text(const StagesReport& report, const Console& console);

/// The same as a JSON document. @see schemas/stages.schema.json
[[nodiscard]] std::string stages_json(const StagesReport& report,
                                      const std::vector<std::string>& warnings);

}  // namespace trash_panda::cli
