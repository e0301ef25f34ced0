#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"

namespace trash_panda::format {

/// The files of a folder that make up its checkpoint.
struct FolderChoice {
  /// Either an index alone, or one or more safetensors files that belong together.
  std::filesystem::path index;
  std::vector<std::filesystem::path> files;
  std::vector<std::string> notes;  ///< Remarks on the choice.
  /// A file of each other checkpoint in the folder. An index may still list it as its own shard.
  std::vector<std::string> others;
};

/// Finds the checkpoint in a folder: transformers and diffusers names, plain before variants, an
/// index before a single file of the same name.
///
/// @retval kMissing      The folder holds no checkpoint, or a numbered shard is not there.
/// @retval kUnsupported  It holds one in another format only.
/// @retval kUsage        It holds several, or the components of a pipeline.
Result<FolderChoice> choose_in_folder(const std::filesystem::path& folder);

}  // namespace trash_panda::format
