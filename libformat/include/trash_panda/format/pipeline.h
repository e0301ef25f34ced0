#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"

namespace trash_panda::format {

/// Name of the file that makes a folder the root of a diffusers pipeline.
inline constexpr std::string_view kPipelineFile = "model_index.json";

/// A part of a pipeline, as its index names it.
struct PipelineComponent {
  std::string name;        ///< "unet"; its files are in the subfolder of that name.
  std::string library;     ///< "diffusers", "transformers".
  std::string class_name;  ///< "UNet2DConditionModel".
  std::filesystem::path path;
  bool has_folder = false;  ///< Whether that subfolder is there.
};

/// A pipeline's parts; their checkpoints were not opened.
struct PipelineIndex {
  std::filesystem::path root;  ///< Absolute.
  std::string class_name;      ///< "StableDiffusionPipeline"; empty where the index says nothing.
  std::vector<PipelineComponent> components;  ///< In the order of the index, absent ones left out.
};

/// Whether `path` is a folder that holds a kPipelineFile, or that file itself.
[[nodiscard]] bool is_pipeline(const std::filesystem::path& path);

/// Reads which components a pipeline has.
///
/// @param path  For which is_pipeline() holds.
/// @retval kCorrupt  The index is no JSON object, or names a component outside its folder.
Result<PipelineIndex> read_pipeline(const std::filesystem::path& path);

}  // namespace trash_panda::format
