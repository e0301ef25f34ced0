#include "resume_command.h"

#include <string_view>
#include <utility>

#include "model_input.h"

namespace trash_panda::cli {

std::string resume_command(const RepackOptions& options) {
  std::string command = "trash-panda repack " + shell_quoted(options.model.text);
  const auto add = [&command](std::string_view flag, const Setting& setting) {
    // What came from the environment is still there.
    if (setting.source.starts_with('-')) {
      command += " " + std::string(flag) + " " + shell_quoted(setting.text);
    }
  };
  add("-o", options.output);
  add("--plan", options.plan);
  add("--compress", options.compress);
  add("--align", options.align);
  add("--reserve", options.reserve);
  add("--limit-rate", options.limit_rate);
  for (const auto& [flag, is_given] : {std::pair<std::string_view, bool>("--force", options.force),
                                       {"--verify", options.verify}}) {
    if (is_given) {
      command += " " + std::string(flag);
    }
  }
  return command + " --resume";
}

}  // namespace trash_panda::cli
