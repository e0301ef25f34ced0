#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trash_panda/base/error.h"
#include "trash_panda/format/dtype.h"
#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::runtime {

/// A stored weight and how to read it.
struct ExpandSource {
  format::Dtype dtype;
  const format::Shape* shape;  ///< Of the weight.
  std::span<const std::byte> payload;
  std::span<const float> scale;  ///< Canonical, row-major; empty: no scale, or codes.
  std::span<const std::uint8_t> scale_codes = {};  ///< F8_E8M0, in place of `scale`.
  format::Granularity granularity = format::Granularity::kTensor;
  std::uint64_t block_rows = 0;  ///< Of Granularity::kBlock.
  std::uint64_t block_columns = 0;
};

/// Whether expand() can turn `from` into `to` (BF16, F16 or F32). From: every fp8 and F16, BF16,
/// F32, F64; the last is rounded to F32 first, as torch does it.
[[nodiscard]] bool can_expand(format::Dtype from, format::Dtype to);

/// Decodes a weight to F32, multiplies by its scale in F32 and rounds once to `to`: bit-equal to
/// `(w.to(f32) * scale).to(dtype)`, NaN, infinities and subnormal numbers included.
///
/// A NaN becomes 0xffff in BF16; in F16 and F32 it keeps the sign and payload that the
/// multiplication gave it. So does torch 2.13 on x86 with AVX2 or later; elsewhere its NaN differ.
///
/// Shapes are as at format::Granularity: leading dimensions of a weight with more than two have
/// scales of their own, and scales per row may belong to any prefix of the dimensions. Scales per
/// column may be shared by the leading dimensions, too.
///
/// @param source  Its sizes agree, as parse_manifest() checks them, and can_expand(source.dtype,
///                to). No alignment is asked of the payload.
/// @param target  Exactly elements * width(to) bytes; does not overlap the source.
void expand(const ExpandSource& source, format::Dtype to, std::span<std::byte> target);

}  // namespace trash_panda::runtime
