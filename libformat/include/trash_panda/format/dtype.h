#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trash_panda::format {

/// Element types of the safetensors format, always little-endian.
/// @see safetensors, enum Dtype.
enum class Dtype : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,  ///< E4M3FN: finite and NaN only, maximum 448.
  kF8E8M0,  ///< Power-of-two scale, value 2^(code - 127), code 255 is NaN.
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
  kF4,  ///< E2M1, two per byte.
  kF6E2M3,
  kF6E3M2,
  /// None of safetensors: blocks of a GGUF file, where no element has a width of its own, so that
  /// nothing can take them for numbers. TensorRecord::ggml_type says which.
  kGgmlBlock,
};

/// The name as it stands in a safetensors header: "BF16", "F8_E4M3". "GGML" for kGgmlBlock: to
/// people, type_name() says more.
[[nodiscard]] std::string_view dtype_name(Dtype dtype);
/// The dtype of that name; nothing when safetensors has none.
[[nodiscard]] std::optional<Dtype> parse_dtype(std::string_view name);
/// Width of one element in bits: 4, 6, 8, 16, 32 or 64. Not of kGgmlBlock, which has none.
[[nodiscard]] unsigned dtype_bits(Dtype dtype);
/// F8_E4M3, F8_E5M2 and their FNUZ variants: 8-bit floats that carry values, not scales.
[[nodiscard]] bool is_fp8(Dtype dtype);
/// F16, BF16, F32 and F64.
[[nodiscard]] bool is_plain_float(Dtype dtype);

}  // namespace trash_panda::format
