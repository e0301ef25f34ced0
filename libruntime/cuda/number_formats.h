#pragma once

// How 8-bit and 16-bit floats become F32 and back. One source for the host and the GPU: nvcc
// compiles it into the kernels, the host compiler into expand() and into the tests. Only integer
// operations and F32 arithmetic, so that both give the same bits.

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define TP_HOST_DEVICE constexpr __host__ __device__ __forceinline__
// The same for what is never computed by the compiler.
#define TP_HOST_DEVICE_RUN __host__ __device__ __forceinline__
// Keeps a loop as it is: unrolled, rare cases would make the kernels several times larger.
#define TP_NO_UNROLL _Pragma("unroll 1")
#else
#define TP_HOST_DEVICE constexpr
#define TP_HOST_DEVICE_RUN inline
#define TP_NO_UNROLL
#endif

namespace trash_panda::runtime::cuda {

inline constexpr std::uint32_t kFloatSign = 0x8000'0000;
inline constexpr std::uint32_t kFloatInfinity = 0x7f80'0000;
inline constexpr std::uint32_t kFloatQuietBit = 0x0040'0000;

/// The layout of an 8-bit float.
struct Fp8Format {
  int mantissa_bits;
  int bias;
  /// FNUZ: no infinities, no -0, and the code of -0 is the only NaN.
  bool is_fnuz;
  /// The largest exponent holds infinity and NaN, as in IEEE 754. Otherwise it holds numbers, and
  /// only all ones is NaN.
  bool has_infinity;
};

/// @see OCP 8-bit Floating Point Specification, revision 1.0, table 1.
inline constexpr Fp8Format kE4M3 = {
    .mantissa_bits = 3, .bias = 7, .is_fnuz = false, .has_infinity = false};
inline constexpr Fp8Format kE5M2 = {
    .mantissa_bits = 2, .bias = 15, .is_fnuz = false, .has_infinity = true};
/// @see "8-bit Numerical Formats for Deep Neural Networks", arXiv:2206.02915.
inline constexpr Fp8Format kE4M3Fnuz = {
    .mantissa_bits = 3, .bias = 8, .is_fnuz = true, .has_infinity = false};
inline constexpr Fp8Format kE5M2Fnuz = {
    .mantissa_bits = 2, .bias = 16, .is_fnuz = true, .has_infinity = false};

/// Value of an 8-bit float. Exact: every finite code is a normal F32 number or zero. Payloads of
/// NaN are those of torch 2.13.
TP_HOST_DEVICE float decode_fp8(Fp8Format format, std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7fU;
  const std::uint32_t mantissa = magnitude & ((1U << format.mantissa_bits) - 1);
  const std::uint32_t exponent = magnitude >> format.mantissa_bits;
  const std::uint32_t fraction = mantissa << (23 - format.mantissa_bits);
  if (format.is_fnuz && code == 0x80) {
    return std::bit_cast<float>(kFloatInfinity | 1U);  // A signalling NaN, as torch has it.
  }
  if (!format.is_fnuz && !format.has_infinity && magnitude == 0x7f) {
    return std::bit_cast<float>(sign | kFloatInfinity | fraction);
  }
  if (format.has_infinity && exponent == (0x7fU >> format.mantissa_bits)) {
    const std::uint32_t quiet = mantissa == 0 ? 0 : kFloatQuietBit;
    return std::bit_cast<float>(sign | kFloatInfinity | quiet | fraction);
  }
  if (exponent == 0) {
    // Subnormal: mantissa * 2^(1 - bias - mantissa_bits), a power of two that F32 has.
    const auto unit_exponent =
        static_cast<std::uint32_t>(127 + 1 - format.bias - format.mantissa_bits);
    const float value = static_cast<float>(mantissa) * std::bit_cast<float>(unit_exponent << 23);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  const std::uint32_t float_exponent = exponent + static_cast<std::uint32_t>(127 - format.bias);
  return std::bit_cast<float>(sign | (float_exponent << 23) | fraction);
}

TP_HOST_DEVICE float decode_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

TP_HOST_DEVICE float decode_f16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0x1f) {
    const std::uint32_t quiet = mantissa == 0 ? 0 : kFloatQuietBit;
    return std::bit_cast<float>(sign | kFloatInfinity | quiet | (mantissa << 13));
  }
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Value of an exponent code: 2^(code - 127), 255 is NaN.
/// @see OCP Microscaling Formats Specification, revision 1.0, section 5.4.1
TP_HOST_DEVICE float decode_e8m0(std::uint8_t code) {
  const std::uint32_t exponent = std::uint32_t{code} << 23;
  // 2^-127 is subnormal: the code is not its exponent field.
  const std::uint32_t bits = code == 0 ? 0x0040'0000U : exponent;
  return std::bit_cast<float>(code == 0xff ? kFloatInfinity | kFloatQuietBit : bits);
}

/// Rounds to the nearest BF16, ties to even. Every NaN becomes 0xffff: what torch 2.13 makes of it
/// with its vector code for x86. (Its scalar code gives 0x7fc0, its GPU code 0x7fff: there is no
/// one answer to follow, and this is the one that a CPU user compares with.)
TP_HOST_DEVICE std::uint16_t encode_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  // The carry of the rounding runs into the exponent, up to infinity: just what is wanted.
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & ~kFloatSign) > kFloatInfinity;
  return static_cast<std::uint16_t>(is_nan ? 0xffff : rounded);
}

/// Rounds to the nearest F16, ties to even; 65520 and more become infinity. A NaN keeps its sign
/// and the upper bits of its payload and becomes quiet, as the x86 instruction VCVTPS2PH does it.
TP_HOST_DEVICE std::uint16_t encode_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & kFloatSign) >> 16;
  const std::uint32_t magnitude = bits & ~kFloatSign;
  // Normal results: move the exponent's bias from 127 to 15, then round 13 bits off.
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Subnormal results: adding 0.5, whose last bit is worth 2^-24, lets the adder do the rounding.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  std::uint32_t result = magnitude < 0x3880'0000 ? subnormal : normal;  // 2^-14
  result = magnitude >= 0x477f'f000 ? 0x7c00 : result;                  // 65520
  result = magnitude > kFloatInfinity ? 0x7e00 | ((magnitude >> 13) & 0x3ff) : result;
  return static_cast<std::uint16_t>(sign | result);
}

}  // namespace trash_panda::runtime::cuda
