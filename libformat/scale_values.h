#pragma once

#include <cstddef>
#include <span>

#include "trash_panda/format/dtype.h"

namespace trash_panda::format {

/// Whether decode_scale() can read scales of this dtype.
[[nodiscard]] bool is_scale_dtype(Dtype dtype);

/// Decodes scales as they are stored to F32: exactly, F64 rounded once. U8 holds exponents as
/// F8_E8M0 does: 2^(code - 127), code 255 is NaN.
///
/// @param bytes  As many elements of `dtype`, for which is_scale_dtype() holds, as `target` has.
void decode_scale(Dtype dtype, std::span<const std::byte> bytes, std::span<float> target);

}  // namespace trash_panda::format
