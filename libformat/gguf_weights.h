#pragma once

#include <string>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// The weights of a GGUF checkpoint: all of its tensors. Scales lie inside of blocks, so no name
/// and no configuration beside the file has a say in what a tensor is.
[[nodiscard]] WeightTable list_gguf_weights(const Checkpoint& checkpoint);

/// Where a GGUF checkpoint says that the model which it was made from is; empty where it doesn't.
[[nodiscard]] std::string gguf_source(const Checkpoint& checkpoint);

}  // namespace trash_panda::format
