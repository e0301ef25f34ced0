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
  format::PackLayout layout;
  std::vector<std::string> warnings;
};

/// Opens the checkpoint, reads or makes the plan and lays the pack out.
///
/// @retval kStale  The plan was made for another checkpoint.
Result<RepackInput> load_repack_input(const RepackOptions& options,
                                      const std::filesystem::path& model_path, Console& console);

}  // namespace trash_panda::cli
