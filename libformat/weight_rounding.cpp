#include "weight_rounding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "scale_values.h"

namespace trash_panda::format {

namespace {

constexpr std::uint32_t kSign = 0x8000'0000;
constexpr std::uint32_t kInfinity = 0x7f80'0000;
/// The largest value of F8_E4M3.
constexpr float kE4M3Max = 448.0F;
/// Elements that are converted at a time, by way of F32 in the first-level cache.
constexpr std::size_t kElements = 2048;

std::uint16_t encode_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & ~kSign) > kInfinity;
  return static_cast<std::uint16_t>(is_nan ? 0xffff : rounded);
}

std::uint16_t encode_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & kSign) >> 16;
  const std::uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) {
    return static_cast<std::uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  if (magnitude >= 0x477f'f000) {  // 65520, which rounds up to infinity.
    return static_cast<std::uint16_t>(sign | 0x7c00);
  }
  if (magnitude < 0x3880'0000) {  // 2^-14: the adder rounds to multiples of 2^-24.
    const auto sum = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F);
    return static_cast<std::uint16_t>(sign | (sum - std::bit_cast<std::uint32_t>(0.5F)));
  }
  // The exponent's bias goes from 127 to 15; 13 bits are rounded off.
  return static_cast<std::uint16_t>(
      sign | ((magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13));
}

std::uint8_t encode_e4m3(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & kSign) >> 24;
  const std::uint32_t magnitude = bits & ~kSign;
  if (magnitude > kInfinity) {
    return static_cast<std::uint8_t>(sign | 0x7f);
  }
  const float limited = std::min(std::bit_cast<float>(magnitude), kE4M3Max);
  const auto limited_bits = std::bit_cast<std::uint32_t>(limited);
  if (limited_bits < 0x3c80'0000) {  // 2^-6: the adder rounds to multiples of 2^-9.
    const auto sum = std::bit_cast<std::uint32_t>(limited + 0x1p14F);
    return static_cast<std::uint8_t>(sign | (sum - std::bit_cast<std::uint32_t>(0x1p14F)));
  }
  // The exponent's bias goes from 127 to 7; 20 bits are rounded off.
  return static_cast<std::uint8_t>(
      sign | ((limited_bits - (120U << 23) + 0x7'ffff + ((limited_bits >> 20) & 1)) >> 20));
}

template <class T, class Encode>
void encode_all(std::span<const float> values, std::span<std::byte> target, Encode encode) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T code = encode(values[i]);
    std::memcpy(target.data() + i * sizeof(T), &code, sizeof(T));
  }
}

void round_values(const WeightConversion& conversion, std::span<float> values,
                  std::span<std::byte> target) {
  if (conversion.dtype == Dtype::kBf16) {
    return encode_all<std::uint16_t>(values, target, encode_bf16);
  }
  if (conversion.dtype == Dtype::kF16) {
    return encode_all<std::uint16_t>(values, target, encode_f16);
  }
  const float scale = conversion.scale.value_or(1.0F);
  for (float& value : values) {
    value /= scale;
  }
  encode_all<std::uint8_t>(values, target, encode_e4m3);
}

Result<void> narrow_exactly(std::span<const std::byte> source, std::span<std::byte> target) {
  if (!are_bf16(source)) {
    return std::unexpected(Error(ErrorCode::kStale, "the source changed while it was read"));
  }
  for (std::size_t i = 0; i < target.size() / 2; ++i) {
    std::memcpy(target.data() + 2 * i, source.data() + 4 * i + 2, 2);
  }
  return {};
}

}  // namespace

Result<void> convert_weight(const WeightConversion& conversion, Dtype from,
                            std::span<const std::byte> source, std::span<std::byte> target) {
  const std::size_t from_width = dtype_bits(from) / 8;
  const std::size_t to_width = dtype_bits(conversion.dtype) / 8;
  TP_ASSERT(source.size() / from_width == target.size() / to_width);
  if (conversion.is_exact) {
    TP_ASSERT(from == Dtype::kF32 && conversion.dtype == Dtype::kBf16);
    return narrow_exactly(source, target);
  }
  std::array<float, kElements> values;
  while (!source.empty()) {
    const std::size_t count = std::min(source.size() / from_width, kElements);
    const std::span<float> some = std::span(values).first(count);
    decode_scale(from, source.first(count * from_width), some);
    round_values(conversion, some, target.first(count * to_width));
    source = source.subspan(count * from_width);
    target = target.subspan(count * to_width);
  }
  return {};
}

float fp8_scale(float largest_magnitude) {
  constexpr float kScaleMin = 1e-12F;
  return std::max(largest_magnitude / kE4M3Max, kScaleMin);
}

float largest_magnitude(Dtype dtype, std::span<const std::byte> values) {
  const std::size_t width = dtype_bits(dtype) / 8;
  std::array<float, kElements> decoded;
  // Magnitudes are ordered as the bits are, and NaN above all.
  std::uint32_t largest = 0;
  while (!values.empty()) {
    const std::size_t count = std::min(values.size() / width, kElements);
    decode_scale(dtype, values.first(count * width), std::span(decoded).first(count));
    for (const float value : std::span(decoded).first(count)) {
      largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & ~kSign);
    }
    values = values.subspan(count * width);
  }
  return std::bit_cast<float>(largest);
}

void widen_bf16(std::span<const std::byte> narrow, std::span<std::byte> wide) {
  TP_ASSERT(wide.size() == 2 * narrow.size());
  for (std::size_t i = 0; i < narrow.size() / 2; ++i) {
    std::memset(wide.data() + 4 * i, 0, 2);
    std::memcpy(wide.data() + 4 * i + 2, narrow.data() + 2 * i, 2);
  }
}

bool are_bf16(std::span<const std::byte> floats) {
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < floats.size() / 4; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, floats.data() + 4 * i, sizeof(bits));
    seen |= bits;
  }
  return (seen & 0xffff) == 0;
}

}  // namespace trash_panda::format
