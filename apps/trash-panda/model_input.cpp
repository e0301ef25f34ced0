#include "model_input.h"

#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/manifest.h"

#include "environment.h"
#include "progress_bar.h"

namespace trash_panda::cli {

bool is_pack(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path / format::kManifestName, ignored);
}

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
  return format::resolve_model(model.text, hub_cache_environment());
}

Result<LoadedModel> load_model(const std::filesystem::path& path,
                               const std::vector<std::string>& groups, Console& console) {
  // A few milliseconds from a drive; from a network or a sleeping disk, as long as it takes.
  const ProgressBar progress(console, fmt::format("reading headers of {}", printable(path)));
  TP_ASSIGN_OR_RETURN(format::Checkpoint checkpoint, format::Checkpoint::open(path));
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
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return quoted + "'";
}

std::string_view group_prefix(std::string_view block_name) {
  return block_name.substr(0, block_name.rfind('.') + 1);
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", format_count(count), noun, count == 1 ? "" : "s");
}

}  // namespace trash_panda::cli
