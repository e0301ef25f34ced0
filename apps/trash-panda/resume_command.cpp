#include "resume_command.h"

#include <string_view>

#include <fmt/format.h>

#include "model_input.h"

namespace trash_panda::cli {

namespace {

/// A command line that is put together word by word.
class CommandText {
 public:
  /// @param positional  The name that it was given by is a part of packs: "./" before it, where it
  ///                    is like an option, would change that.
  CommandText(std::string_view command, const Setting& positional)
      : positional_(shell_quoted(positional.text)),
        is_like_option_(positional.text.starts_with('-')) {
    text_ = fmt::format("trash-panda {}{}{}", command, is_like_option_ ? "" : " ",
                        is_like_option_ ? "" : positional_);
  }

  void add(std::string_view flag, const Setting& setting) {
    // Of the environment, too: it may have been set for the one command.
    if (setting.given()) {
      add(flag);
      text_ += " " + shell_quoted(setting.text);
    }
  }
  void add(std::string_view flag) { text_ += fmt::format(" {}", flag); }

  [[nodiscard]] std::string text() const {
    return is_like_option_ ? text_ + " -- " + positional_ : text_;
  }

 private:
  std::string positional_;
  bool is_like_option_;
  std::string text_;
};

}  // namespace

std::string resume_command(const RepackOptions& options) {
  CommandText command("repack", options.model);
  command.add("-o", options.output);
  command.add("--plan", options.plan);
  command.add("--compress", options.compress);
  command.add("--dtype", options.dtype);
  command.add("--align", options.align);
  command.add("--disk-dir", options.disk_dir);
  command.add("--direct", options.direct);
  command.add("--reserve", options.reserve);
  command.add("--limit-rate", options.limit_rate);
  if (options.force) {
    command.add("--force");
  }
  if (options.verify) {
    command.add("--verify");
  }
  command.add("--resume");
  return command.text();
}

std::string unpack_command(const UnpackOptions& options) {
  CommandText command("unpack", options.pack);
  command.add("-o", options.output);
  command.add("--max-shard-size", options.max_shard_size);
  command.add("--reserve", options.reserve);
  return command.text();
}

}  // namespace trash_panda::cli
