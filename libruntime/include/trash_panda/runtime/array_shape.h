#pragma once

#include "trash_panda/base/error.h"
#include "trash_panda/format/shape.h"
#include "trash_panda/runtime/streamer.h"

namespace trash_panda::runtime {

/// Shape of a tensor for libraries of arrays, whose elements are whole bytes: of packed 4-bit
/// floats an element is two values, so that the last dimension halves; 6-bit floats, which none of
/// those libraries packs, are a vector of bytes.
///
/// @retval kUnsupported  4-bit floats with an odd last dimension, or none.
Result<format::Shape> array_shape(const TensorView& tensor);

}  // namespace trash_panda::runtime
