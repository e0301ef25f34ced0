#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/format/dtype.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/tensor_record.h"

#include "inspect_listing.h"
#include "model_config.h"
#include "model_input.h"
#include "model_remarks.h"

namespace trash_panda::cli {

/// How weights are stored: what a scale is per, and how the checkpoint spells it.
struct StorageLayout {
  std::string format;       ///< "fp8 (scale per 128x128 block)". @see format::storage_name
  std::string scale_dtype;  ///< Of the stored scale: "F32"; empty where there is none.
  std::string scale_leaf;   ///< Last part of its name: "weight_scale_inv".

  auto operator<=>(const StorageLayout&) const = default;
};

/// How many tensors are alike, and their bytes; of a layout the weights and their payloads.
struct LayoutTotal {
  std::uint64_t tensor_count = 0;
  std::uint64_t bytes = 0;
};
using LayoutTotals = std::map<StorageLayout, LayoutTotal>;

/// What a tensor is to the model.
enum class TensorRole : std::uint8_t {
  kWeight,
  kScale,    ///< Of a weight.
  kLeftOut,  ///< No part of the model: activation and cache scales, markers.
};

struct InspectedTensor {
  std::string name;
  std::string_view dtype;  ///< As people call it.
  format::Shape shape;
  std::uint64_t size_bytes = 0;
  std::uint64_t offset_bytes = 0;  ///< From the start of its file.
  std::size_t file_index = 0;      ///< Into InspectSummary::files.
  TensorRole role = TensorRole::kWeight;
  std::string format;  ///< Of a weight. @see StorageLayout
  std::string scale;   ///< Name of the stored tensor that is its scale; empty where there is none.
  std::string block;   ///< That it is in; empty outside of all.
};

struct InspectedFile {
  std::string name;
  std::filesystem::path path;
  std::uint64_t size_bytes = 0;
  std::uint64_t header_bytes = 0;  ///< Where the data begin.
};

struct InspectedGroup {
  std::string prefix;
  std::uint64_t count = 0;
  std::uint64_t bytes_min = 0;
  std::uint64_t bytes_max = 0;
  std::uint64_t bytes_total = 0;
  LayoutTotals layouts;

  void add_block(std::uint64_t block_bytes);
};

/// Scales of all weights, and which of their values are seldom meant.
struct InspectedScales {
  struct Special {
    std::string name;
    std::string_view kind;
  };

  std::uint64_t count = 0;
  std::uint64_t bytes = 0;  ///< As stored.
  bool is_checked = true;   ///< Whether all values were looked at.
  std::vector<Special> special;
};

/// A part of a pipeline.
struct InspectedComponent {
  std::string name;
  std::string library;
  std::string class_name;
  std::string model;  ///< What to say to other commands: "flux/transformer", "org/name:unet".
  std::uint64_t tensor_count = 0;  ///< 0: it has no weights (schedulers, tokenizers).
  std::uint64_t bytes = 0;
  std::map<std::string, std::uint64_t> dtype_bytes;
  std::vector<InspectedGroup> groups;
  std::vector<std::string> formats;
  std::string error;  ///< Why it can't be read; empty when it can.
};

/// What `inspect` tells, whatever kind of thing it looked at.
struct InspectSummary {
  std::filesystem::path path;
  std::string fingerprint;  ///< Of the checkpoint, or of a pack's source; empty for a pipeline.
  std::string kind;         ///< "checkpoint", "pack" or "pipeline".
  /// Of a checkpoint's files: "safetensors", "torch" or "GGUF"; "safetensors" of a pack's shards.
  std::string_view file_format = "safetensors";
  Architecture architecture;
  std::vector<std::string> formats;
  std::vector<std::string> warnings;
  std::vector<InspectedFile> files;
  std::uint64_t tensor_count = 0;  ///< Names of tied tensors are not counted, nor their bytes.
  std::uint64_t total_bytes = 0;
  std::map<std::string, LayoutTotal, std::less<>> dtypes;
  std::vector<std::string> left_out;     ///< Names of tensors that are no part of the model.
  std::vector<InspectedTensor> tensors;  ///< Those that are told of one by one.
  std::vector<InspectedGroup> groups;
  std::uint64_t outside_count = 0;
  std::uint64_t outside_bytes = 0;
  LayoutTotals outside_layouts;
  std::vector<Tie> ties;
  InspectedScales scales;
  std::vector<InspectedComponent> components;  ///< Of a pipeline.

  void count_tensor(std::string_view dtype, std::uint64_t size_bytes);
};

[[nodiscard]] InspectSummary summarize_checkpoint(const LoadedModel& model,
                                                  const TensorListing& listing);

/// Reads the values of all scales, where opening the checkpoint left them.
Result<void> check_scales(const LoadedModel& model, InspectSummary& summary);

/// @param path  The pack's folder.
[[nodiscard]] InspectSummary summarize_pack(const std::filesystem::path& path,
                                            const format::Manifest& manifest,
                                            const TensorListing& listing);

/// Leaves those tensors that a listing chooses.
void list_tensors(InspectSummary& summary, const TensorListing& listing);

}  // namespace trash_panda::cli
