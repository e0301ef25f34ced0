#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trash_panda/base/error.h"
#include "trash_panda/format/dtype.h"
#include "trash_panda/format/pack_writer.h"

namespace trash_panda::format {

/// Makes the stored bytes of a converted weight from those of the source.
///
/// F8_E4M3: value / scale in F32, not beyond ±448, rounded to the nearest, ties to even; NaN keeps
/// its sign. BF16 and F16: rounded to the nearest, ties to even; NaN as runtime::expand() has it.
///
/// @param from    F32, F16 or BF16; at exact conversions F32.
/// @param source  Whole elements, at any address.
/// @param target  As many elements of `conversion.dtype`; does not overlap `source`.
/// @retval kStale  The conversion is said to be exact, and is not: the source has changed.
Result<void> convert_weight(const WeightConversion& conversion, Dtype from,
                            std::span<const std::byte> source, std::span<std::byte> target);

/// The scale of a tensor that is stored as F8_E4M3, by its largest magnitude: the magnitude over
/// 448, at least 1e-12, as the Python package's quantize_fp8() has it.
[[nodiscard]] float fp8_scale(float largest_magnitude);

/// The largest magnitude among values of F32, F16 or BF16, 0 for none; NaN if there is one.
[[nodiscard]] float largest_magnitude(Dtype dtype, std::span<const std::byte> values);

/// Makes F32 of the BF16 that they were narrowed to, exactly.
void widen_bf16(std::span<const std::byte> narrow, std::span<std::byte> wide);

/// Whether the lower halves of all F32 are zero, so that BF16 holds them exactly.
[[nodiscard]] bool are_bf16(std::span<const std::byte> floats);

}  // namespace trash_panda::format
