#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/format/exponent_code.h"

/// Arrays that an exponent code may do well or badly on, and a look into what was made of them.
namespace trash_panda::testing {

using Bytes = std::vector<std::byte>;

inline std::size_t width_of(format::Dtype dtype) {
  return format::dtype_bits(dtype) / 8;
}

/// An array of which each element's upper 16 bits come from `next`; lower ones, if any, are noise.
inline Bytes elements_of(format::Dtype dtype, std::size_t count,
                         const std::function<unsigned()>& next) {
  Bytes raw(count * width_of(dtype));
  std::minstd_rand noise(7);
  for (std::size_t i = 0; i < count; ++i) {
    auto element = static_cast<std::uint32_t>(next()) << 16U;
    element |= static_cast<std::uint32_t>(noise()) & 0xffffU;
    // The last bytes of a little-endian f32 are those of a bf16.
    std::memcpy(raw.data() + i * width_of(dtype),
                std::as_bytes(std::span(&element, 1)).data() + 4 - width_of(dtype),
                width_of(dtype));
  }
  return raw;
}

/// As weights are: normal with a deviation of 0.02.
inline Bytes gaussian(format::Dtype dtype, std::size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  return elements_of(dtype, count,
                     [&] { return std::bit_cast<std::uint32_t>(normal(random)) >> 16U; });
}

/// An array whose exponents come from `next`, with random signs and mantissas.
inline Bytes with_exponents(format::Dtype dtype, std::size_t count,
                            const std::function<unsigned(std::mt19937&)>& next, unsigned seed = 1) {
  std::mt19937 random(seed);
  return elements_of(dtype, count, [&] {
    const auto rest = static_cast<unsigned>(random());
    return (rest & 0x807fU) | next(random) % 256 << 7U;
  });
}

struct NamedArray {
  std::string name;
  Bytes raw;
};

/// One array of each kind.
inline std::vector<NamedArray> arrays_of_each_kind(format::Dtype dtype, std::size_t count) {
  const auto any = [](std::mt19937& random) { return static_cast<unsigned>(random()); };
  std::vector<NamedArray> arrays;
  arrays.push_back({"gaussian", gaussian(dtype, count)});
  arrays.push_back({"random bits", with_exponents(dtype, count, any)});
  arrays.push_back({"zeros", Bytes(count * width_of(dtype))});
  arrays.push_back({"ones", elements_of(dtype, count, [] { return 0x3f80U; })});
  arrays.push_back({"NaN payloads and infinities",
                    with_exponents(dtype, count, [](std::mt19937&) { return 255U; })});
  arrays.push_back({"denormals", with_exponents(dtype, count, [](std::mt19937&) { return 0U; })});
  arrays.push_back(
      {"codes of the second level only", with_exponents(dtype, count, [](auto& random) {
         return random() % 64 == 0 ? static_cast<unsigned>(random()) % 3
                                   : 3 + static_cast<unsigned>(random()) % 7;
       })});
  arrays.push_back(
      {"one literal in each group", with_exponents(dtype, count, [n = 0U](auto& random) mutable {
         return n++ % 64 == 0 ? static_cast<unsigned>(random()) : 100U + n % 3;
       })});
  // The chunk's most frequent exponents are none of the first tiles' own.
  arrays.push_back(
      {"all literals, then none", with_exponents(dtype, count, [n = 0U](auto& random) mutable {
         return n++ % format::kExponentChunkElements < 6000
                    ? 200U + static_cast<unsigned>(random()) % 50
                    : static_cast<unsigned>(random()) % 10;
       })});
  arrays.push_back({"all 256 exponents alike",
                    with_exponents(dtype, count, [n = 0U](auto&) mutable { return n++; })});
  return arrays;
}

/// format::encode_exponents() into just as many bytes as it may take, cut to those that it took.
inline Bytes encode(format::Dtype dtype, std::span<const std::byte> raw,
                    const format::ExponentImplementation& implementation) {
  Bytes coded(format::exponent_coded_bytes_max(dtype, raw.size() / width_of(dtype)),
              std::byte{0xa5});
  coded.resize(format::encode_exponents(dtype, raw, coded, implementation));
  coded.shrink_to_fit();
  return coded;
}

}  // namespace trash_panda::testing
