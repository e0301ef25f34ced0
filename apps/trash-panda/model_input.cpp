#include "model_input.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/pipeline.h"

#include "environment.h"
#include "pack_folder.h"
#include "progress_bar.h"

namespace trash_panda::cli {

namespace {

bool is_control(char c) {
  const auto code = static_cast<unsigned char>(c);
  return code < 0x20 || code == 0x7f;
}

/// What helps where the system keeps a model from this user.
Error with_permission_hint(Error error) {
  if ((error.errno_value() == EACCES || error.errno_value() == EPERM) && error.hint().empty()) {
    return std::move(error).with_hint("allow this user to read it (chmod, chown), or copy it");
  }
  return error;
}

}  // namespace

Result<void> refuse_pack(const std::filesystem::path& path) {
  if (!is_pack(path)) {
    return {};
  }
  const Result<format::Manifest> manifest = format::read_manifest(path);
  return std::unexpected(
      Error(ErrorCode::kUnsupported,
            fmt::format("{} is a pack already, not a checkpoint", printable(path)))
          .with_hint(manifest ? fmt::format("its source was {}",
                                            printable(std::string_view(manifest->source_path)))
                              : "give the checkpoint that it was made from"));
}

Result<std::filesystem::path> find_model(const Setting& model) {
  std::error_code error;
  static_cast<void>(std::filesystem::status(model.text, error));
  if (error == std::errc::permission_denied) {
    // Whether it exists, only those who may look can tell.
    return std::unexpected(with_permission_hint(
        Error::from_errno(EACCES, fmt::format("can't open {}", printable(model.text)))));
  }
  TP_ASSIGN_OR_RETURN(std::filesystem::path path,
                      format::resolve_model(model.text, hub_cache_environment()));
  if (path.filename() != format::kPipelineFile) {
    return path;
  }
  // A pipeline's index stands for its folder.
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

Result<LoadedModel> load_model(const std::filesystem::path& path,
                               const std::vector<std::string>& groups, Console& console) {
  // A few milliseconds from a drive; from a network or a sleeping disk, as long as it takes.
  const ProgressBar progress(console, fmt::format("reading headers of {}", printable(path)));
  Result<format::Checkpoint> opened = format::Checkpoint::open(path);
  if (!opened) {
    return std::unexpected(with_permission_hint(std::move(opened).error()));
  }
  format::Checkpoint checkpoint = *std::move(opened);
  TP_ASSIGN_OR_RETURN(format::WeightTable weights, format::find_weights(checkpoint));
  TP_ASSIGN_OR_RETURN(plan::BlockMap blocks,
                      plan::find_blocks(checkpoint.tensors(), {.groups = groups}));
  std::vector<std::string> warnings = checkpoint.notes();
  warnings.insert(warnings.end(), weights.warnings.begin(), weights.warnings.end());
  return LoadedModel{.checkpoint = std::move(checkpoint),
                     .weights = std::move(weights),
                     .blocks = std::move(blocks),
                     .warnings = std::move(warnings)};
}

std::string shell_quoted(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(text);
  }
  if (std::ranges::any_of(text, is_control)) {
    // bash, zsh and POSIX 2024; nothing else keeps a line break on one line.
    return "$" + python_quoted(text);
  }
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted + "'";
}

std::string path_argument(const std::filesystem::path& path) {
  return shell_quoted(path.native().starts_with('-') ? "./" + path.native() : path.native());
}

std::string python_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (is_control(c)) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else if (c == '\'' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string_view group_prefix(std::string_view block_name) {
  return block_name.substr(0, block_name.rfind('.') + 1);
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", format_count(count), noun, count == 1 ? "" : "s");
}

std::string some_names(const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, names.size()); ++i) {
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", printable(std::string_view(names[i])));
  }
  return names.size() > kNamed ? text + ", …" : text;
}

}  // namespace trash_panda::cli
