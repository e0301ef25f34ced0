#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"

namespace trash_panda::format {

/// The format whose scales are exponents in cuBLAS's swizzled layout.
inline constexpr std::string_view kComfyMxfp8 = "mxfp8";

/// What ComfyUI's metadata says about one layer.
struct ComfyLayer {
  std::string source;  ///< Where it says so, for messages.
  std::string format;  ///< As written, such as "float8_e4m3fn".
  /// An option that changes what the stored values mean, such as "convrot" (its rows went through
  /// a Hadamard rotation); empty: none.
  std::string option;
};

/// ComfyUI's per-layer formats, by the index of the layer's weight in Checkpoint::tensors().
struct ComfyLayers {
  std::map<std::size_t, ComfyLayer> by_weight;
  std::vector<std::size_t> blobs;  ///< The `X.comfy_quant` tensors: no parameters.
  std::vector<std::string> warnings;
};

/// Reads every `X.comfy_quant` blob and `__metadata__._quantization_metadata`.
///
/// Layer names in the metadata are matched with and without the component's prefix
/// ("model.diffusion_model."): writers disagree about it.
///
/// @retval kCorrupt  A blob or the metadata can't be read, or they disagree about a layer; reason
///                   "bad_quant_metadata".
/// @see ComfyUI QUANTIZATION.md, comfy/quant_ops.py
Result<ComfyLayers> read_comfy_layers(const Checkpoint& checkpoint);

}  // namespace trash_panda::format
