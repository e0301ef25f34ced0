#pragma once

// Number formats written down from their definitions, slowly and in double precision: what fast
// code is compared with. Nothing here is shared with libruntime.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace trash_panda::testing {

/// A binary floating-point format of up to 32 bits.
struct SlowFormat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  enum class Specials { kIeee, kFn, kFnuz } specials;

  [[nodiscard]] int exponent_max_code() const { return (1 << exponent_bits) - 1; }
  [[nodiscard]] std::uint32_t sign_bit() const { return 1U << (exponent_bits + mantissa_bits); }
};

inline constexpr SlowFormat kSlowE4M3 = {4, 3, 7, SlowFormat::Specials::kFn};
inline constexpr SlowFormat kSlowE5M2 = {5, 2, 15, SlowFormat::Specials::kIeee};
inline constexpr SlowFormat kSlowE4M3Fnuz = {4, 3, 8, SlowFormat::Specials::kFnuz};
inline constexpr SlowFormat kSlowE5M2Fnuz = {5, 2, 16, SlowFormat::Specials::kFnuz};
inline constexpr SlowFormat kSlowF16 = {5, 10, 15, SlowFormat::Specials::kIeee};
inline constexpr SlowFormat kSlowBf16 = {8, 7, 127, SlowFormat::Specials::kIeee};
inline constexpr SlowFormat kSlowF32 = {8, 23, 127, SlowFormat::Specials::kIeee};

/// The value that a code stands for.
inline double slow_decode(const SlowFormat& format, std::uint32_t code) {
  const std::uint32_t magnitude = code & (format.sign_bit() - 1);
  const auto mantissa = static_cast<int>(magnitude & ((1U << format.mantissa_bits) - 1));
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const double sign = (code & format.sign_bit()) != 0 ? -1.0 : 1.0;
  const double nan = std::copysign(std::numeric_limits<double>::quiet_NaN(), sign);
  switch (format.specials) {
    case SlowFormat::Specials::kFnuz:
      if (code == format.sign_bit()) {
        return std::numeric_limits<double>::quiet_NaN();
      }
      break;
    case SlowFormat::Specials::kFn:
      if (magnitude == format.sign_bit() - 1) {
        return nan;
      }
      break;
    case SlowFormat::Specials::kIeee:
      if (exponent == format.exponent_max_code()) {
        return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : nan;
      }
      break;
  }
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - format.bias)
                               : std::ldexp(1 + fraction, exponent - format.bias));
}

/// The code of the nearest value of an IEEE format, ties to even. NaN is the caller's business.
inline std::uint32_t slow_encode(const SlowFormat& format, double value) {
  const std::uint32_t sign = std::signbit(value) ? format.sign_bit() : 0;
  const auto infinity =
      static_cast<std::uint32_t>(format.exponent_max_code() << format.mantissa_bits);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) {
    return sign;
  }
  if (std::isinf(magnitude)) {
    return sign | infinity;
  }
  // The last bit of a result of this size is worth 2^unit.
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  const int unit = exponent - format.mantissa_bits;
  const double units = std::nearbyint(std::ldexp(magnitude, -unit));  // Ties to even.
  // In codes, neighbours follow each other through subnormal, normal and infinity alike.
  const auto code = static_cast<std::uint32_t>(
      units + std::ldexp(exponent - (1 - format.bias), format.mantissa_bits));
  return sign | std::min(code, infinity);
}

}  // namespace trash_panda::testing
