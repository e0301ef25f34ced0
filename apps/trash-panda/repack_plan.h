#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/plan/plan.h"

#include "command_options.h"
#include "console.h"
#include "model_input.h"

namespace trash_panda::cli {

/// All that a pack is made from.
struct RepackInput {
  LoadedModel model;
  plan::Plan plan;
  std::string plan_file;  ///< Empty: planned for this machine.
  bool takes_on = false;  ///< The plan is that of an interrupted run.
  format::PackLayout layout;
  std::vector<std::string> warnings;
};

/// Opens the checkpoint, reads or makes the plan and lays the pack out. Without --plan, the plan of
/// an interrupted run that can be taken on with is used again: free memory changes, and another
/// plan would be another pack.
///
/// @param staged  Where the pack is written, as PackTarget has it.
/// @retval kStale  The plan was made for another checkpoint.
Result<RepackInput> load_repack_input(const RepackOptions& options,
                                      const std::filesystem::path& model_path,
                                      const std::filesystem::path& staged, Console& console);

}  // namespace trash_panda::cli
