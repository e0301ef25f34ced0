#include "scale_values.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "trash_panda/base/error.h"

namespace trash_panda::format {

namespace {

template <class T>
T load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

float decode_bf16(const std::byte* bytes) {
  return std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(bytes)} << 16);
}

float decode_f16(const std::byte* bytes) {
  const std::uint32_t code = load<std::uint16_t>(bytes);
  const std::uint32_t sign = (code & 0x8000U) << 16;
  const std::uint32_t exponent = (code >> 10) & 0x1FU;
  const std::uint32_t fraction = code & 0x3FFU;
  if (exponent == 0) {  // Zero or subnormal: a whole number of 2^-24.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide_exponent = exponent == 0x1F ? 0xFFU : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide_exponent << 23 | fraction << 13);
}

float decode_e8m0(const std::byte* bytes) {
  const auto code = std::to_integer<std::uint32_t>(*bytes);
  if (code == 0) {
    return 0x1p-127F;  // Below the smallest normal number, where the code isn't the exponent.
  }
  return std::bit_cast<float>(code == 0xFF ? 0x7FC00000U : code << 23);
}

template <class Decode>
void decode_all(std::span<const std::byte> bytes, std::span<float> target, Decode decode) {
  const std::size_t width_bytes = target.empty() ? 0 : bytes.size() / target.size();
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] = decode(bytes.data() + i * width_bytes);
  }
}

}  // namespace

bool is_scale_dtype(Dtype dtype) {
  return is_plain_float(dtype) || dtype == Dtype::kF8E8M0 || dtype == Dtype::kU8;
}

void decode_scale(Dtype dtype, std::span<const std::byte> bytes, std::span<float> target) {
  TP_ASSERT(is_scale_dtype(dtype) && bytes.size() == target.size() * (dtype_bits(dtype) / 8));
  switch (dtype) {
    case Dtype::kF32:
      return decode_all(bytes, target, load<float>);
    case Dtype::kF64:
      return decode_all(bytes, target,
                        [](const std::byte* at) { return static_cast<float>(load<double>(at)); });
    case Dtype::kBf16:
      return decode_all(bytes, target, decode_bf16);
    case Dtype::kF16:
      return decode_all(bytes, target, decode_f16);
    default:
      return decode_all(bytes, target, decode_e8m0);
  }
}

}  // namespace trash_panda::format
