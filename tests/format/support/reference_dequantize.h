#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "trash_panda/format/dtype.h"
#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::testing {

/// A float of `exponent_bits` and `fraction_bits` by the book: sign, exponent with bias, fraction.
/// Infinities and NaN are the caller's.
inline float decode_small_float(unsigned code, int exponent_bits, int fraction_bits, int bias) {
  const unsigned fraction = code & ((1U << fraction_bits) - 1U);
  const unsigned exponent = (code >> fraction_bits) & ((1U << exponent_bits) - 1U);
  const bool is_negative = ((code >> (fraction_bits + exponent_bits)) & 1U) != 0;
  const double unit = std::ldexp(1.0, -fraction_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction * unit, 1 - bias)
                    : std::ldexp(1.0 + fraction * unit, static_cast<int>(exponent) - bias);
  return static_cast<float>(is_negative ? -magnitude : magnitude);
}

/// One element as F32, decoded the obvious way.
inline float decode_element(format::Dtype dtype, const char* bytes) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto load = [bytes]<class T>(T value) {
    std::memcpy(&value, bytes, sizeof(T));
    return value;
  };
  const unsigned code = load(std::uint8_t{});
  switch (dtype) {
    case format::Dtype::kF8E4M3:
      return (code & 0x7FU) == 0x7FU ? kNan : decode_small_float(code, 4, 3, 7);
    case format::Dtype::kF8E5M2:
      if ((code & 0x7CU) == 0x7CU) {
        return (code & 3U) != 0 ? kNan : (code & 0x80U) != 0 ? -kInfinity : kInfinity;
      }
      return decode_small_float(code, 5, 2, 15);
    case format::Dtype::kF8E4M3Fnuz:
      return code == 0x80U ? kNan : decode_small_float(code, 4, 3, 8);
    case format::Dtype::kF8E5M2Fnuz:
      return code == 0x80U ? kNan : decode_small_float(code, 5, 2, 16);
    case format::Dtype::kF8E8M0:
      return code == 0xFFU ? kNan : std::ldexp(1.0F, static_cast<int>(code) - 127);
    case format::Dtype::kF16: {
      const unsigned half = load(std::uint16_t{});
      if ((half & 0x7C00U) == 0x7C00U) {
        return (half & 0x3FFU) != 0 ? kNan : (half & 0x8000U) != 0 ? -kInfinity : kInfinity;
      }
      return decode_small_float(half, 5, 10, 15);
    }
    case format::Dtype::kBf16:
      return std::bit_cast<float>(std::uint32_t{load(std::uint16_t{})} << 16);
    case format::Dtype::kF32:
      return load(float{});
    case format::Dtype::kF64:
      return static_cast<float>(load(double{}));
    default:
      throw std::runtime_error("not a float dtype");
  }
}

/// Index into a canonical scale of the element `flat` of a weight.
inline std::size_t scale_index(const format::Shape& weight, const format::WeightScale& scale,
                               std::size_t flat) {
  if (scale.shape.empty()) {
    return 0;
  }
  if (scale.shape.size() != weight.size()) {
    throw std::runtime_error("scale of another rank than its weight");
  }
  std::size_t index = 0;
  std::size_t stride = 1;
  for (std::size_t axis = weight.size(); axis-- > 0;) {
    std::size_t position = flat % weight[axis];
    flat /= weight[axis];
    if (scale.granularity == format::Granularity::kBlock && axis + 2 >= weight.size()) {
      position /= scale.block_shape[axis + 2 - weight.size()];
    } else if (scale.shape[axis] == 1) {
      position = 0;
    }
    if (position >= scale.shape[axis]) {
      throw std::runtime_error("scale smaller than its weight");
    }
    index += position * stride;
    stride *= scale.shape[axis];
  }
  return index;
}

/// Payload times scale in F32, element by element: what every faster way must equal.
inline std::vector<float> dequantize(format::Dtype dtype, const format::Shape& shape,
                                     const std::string& payload, const format::WeightScale* scale,
                                     const std::vector<float>& scale_values) {
  const std::size_t width_bytes = format::dtype_bits(dtype) / 8;
  std::vector<float> values(payload.size() / width_bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = decode_element(dtype, payload.data() + i * width_bytes);
    if (scale != nullptr) {
      values[i] *= scale_values.at(scale_index(shape, *scale, i));
    }
  }
  return values;
}

}  // namespace trash_panda::testing
