#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/block_groups.h"

#include "console.h"
#include "setting.h"

namespace trash_panda::cli {

/// A checkpoint with what its headers tell.
struct LoadedModel {
  format::Checkpoint checkpoint;
  format::WeightTable weights;
  plan::BlockMap blocks;
  /// Remarks about all three, one line each.
  std::vector<std::string> warnings;
};

/// @retval kUnsupported  `path` is a pack: planning and packing want its source, which the message
///                       names.
Result<void> refuse_pack(const std::filesystem::path& path);

/// Finds what a MODEL argument names. @see format::resolve_model
Result<std::filesystem::path> find_model(const Setting& model);

/// Opens a checkpoint and finds its weights and blocks.
///
/// @param groups  Prefixes that replace the search for blocks; empty: search.
Result<LoadedModel> load_model(const std::filesystem::path& path,
                               const std::vector<std::string>& groups, Console& console);

/// `text` as one word for a POSIX shell, on one line, quoted only where it must be.
[[nodiscard]] std::string shell_quoted(std::string_view text);

/// A path as one word of a command, as by shell_quoted(); "./" before what would be an option.
[[nodiscard]] std::string path_argument(const std::filesystem::path& path);

/// `text` as a string literal of Python, on one line.
[[nodiscard]] std::string python_quoted(std::string_view text);

/// "model.layers." of "model.layers.12".
[[nodiscard]] std::string_view group_prefix(std::string_view block_name);

/// "1 block", "57 blocks".
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view noun);

/// The first few of a list of names, quoted, for a message.
[[nodiscard]] std::string some_names(const std::vector<std::string>& names);

}  // namespace trash_panda::cli
