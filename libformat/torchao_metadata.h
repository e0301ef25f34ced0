#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"

#include "quantization_config.h"

namespace trash_panda::format {

/// A parameter that torchao stores in parts: `proj.weight` as `proj._weight_qdata` and
/// `proj._weight_scale`.
struct TorchaoWeight {
  std::string_view name;  ///< Of the parameter; in the metadata of the Checkpoint.
  std::size_t payload;    ///< Into Checkpoint::tensors(), like `scale`.
  std::size_t scale;
  std::vector<TileShape> tiles;  ///< The block size that the metadata gives, where it is a tile.
};

/// Reads what torchao's safetensors writer puts in `__metadata__`: the names of all parameters in
/// `tensor_names`, and for each a JSON text with its type.
///
/// @retval kUnsupported  A type other than Float8Tensor and plain Tensor, by name.
/// @retval kCorrupt      The metadata can't be read (reason "bad_quant_metadata"), or a part is not
///                       there (reason "scale_missing", "missing_tensor").
/// @see torchao, prototype/safetensors/safetensors_support.py
Result<std::vector<TorchaoWeight>> read_torchao_metadata(const Checkpoint& checkpoint);

}  // namespace trash_panda::format
