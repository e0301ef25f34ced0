#include "resume_command.h"

#include <string_view>
#include <utility>

#include "model_input.h"

namespace trash_panda::cli {

std::string resume_command(const RepackOptions& options) {
  // The name that it was given by is a part of the pack: "./" before it would change that.
  const bool is_like_option = options.model.text.starts_with('-');
  const std::string model = shell_quoted(options.model.text);
  std::string command = "trash-panda repack" + (is_like_option ? "" : " " + model);
  const auto add = [&command](std::string_view flag, const Setting& setting) {
    // Of the environment, too: it may have been set for the one command.
    if (setting.given()) {
      command += " " + std::string(flag) + " " + shell_quoted(setting.text);
    }
  };
  add("-o", options.output);
  add("--plan", options.plan);
  add("--compress", options.compress);
  add("--dtype", options.dtype);
  add("--align", options.align);
  add("--disk-dir", options.disk_dir);
  add("--direct", options.direct);
  add("--reserve", options.reserve);
  add("--limit-rate", options.limit_rate);
  for (const auto& [flag, is_given] : {std::pair<std::string_view, bool>("--force", options.force),
                                       {"--verify", options.verify}}) {
    if (is_given) {
      command += " " + std::string(flag);
    }
  }
  return command + " --resume" + (is_like_option ? " -- " + model : "");
}

}  // namespace trash_panda::cli
