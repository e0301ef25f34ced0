#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "trash_panda/format/exponent_code.h"

/// The inner loops of the exponent code: what implementations differ in.
///
/// They work on the upper 16 bits of each element (all of a bf16): sign, 8 bits of exponent, 7 of
/// mantissa; and on *groups* of 64 elements, so that the last tile of an array is filled up.
namespace trash_panda::format {

inline constexpr std::size_t kGroupElements = 64;
inline constexpr std::size_t kTileElements = kExponentTileElements;
/// 2-bit code that stands for "the exponent is in the second level".
inline constexpr unsigned kEscapeCode = 3;
/// 3-bit code that stands for "the exponent is a literal byte".
inline constexpr unsigned kLiteralCode = 7;
/// Second-level codes are packed by eights into three bytes.
inline constexpr std::size_t kEscapeOctetBytes = 3;
/// Kernels may read and write this much past the end of a tile's escapes: chunks end in as much
/// padding.
inline constexpr std::size_t kEscapeSlackBytes = 64;

/// The exponents that have codes in a chunk, by their codes.
struct ExponentTables {
  std::array<std::uint8_t, kEscapeCode> first;
  std::array<std::uint8_t, kLiteralCode> second;
};

/// How many elements of a tile have each kind of escape; each literal counts as both.
struct EscapeCounts {
  std::uint32_t escape_count;
  std::uint32_t literal_count;
};

/// Bytes of a tile's escapes: second-level codes, then literals.
[[nodiscard]] constexpr std::size_t escape_code_bytes(std::size_t escape_count) {
  return (escape_count + 7) / 8 * kEscapeOctetBytes;
}
[[nodiscard]] constexpr std::size_t escape_bytes(const EscapeCounts& counts) {
  return escape_code_bytes(counts.escape_count) + counts.literal_count;
}

/// Where the parts of one coded tile lie.
struct TilePlanes {
  std::byte* rests;    ///< kGroupElements bytes a group: sign << 7 | mantissa.
  std::byte* codes;    ///< A quarter of that: 2-bit codes, the first element in the lowest bits.
  std::byte* escapes;  ///< escape_bytes(), and kEscapeSlackBytes that may be read or overwritten.
};
struct ConstTilePlanes {
  const std::byte* rests;
  const std::byte* codes;
  const std::byte* escapes;
};

/// Codes by exponent, and the tables that they are the inverse of.
struct ExponentCodes {
  ExponentTables tables;                 ///< Ten different exponents.
  std::array<std::uint8_t, 256> first;   ///< 0 to 2, or kEscapeCode.
  std::array<std::uint8_t, 256> second;  ///< 0 to 6, or kLiteralCode.
};

using ExponentCounts = std::array<std::uint32_t, 256>;

struct ExponentKernels {
  /// Adds the exponents of `count` 16-bit values, at any address, to `counts`.
  void (*count_exponents)(const std::byte* values, std::size_t count, ExponentCounts& counts);

  /// Codes `group_count` groups of a tile.
  EscapeCounts (*encode_tile)(const std::byte* values, std::size_t group_count,
                              const ExponentCodes& codes, const TilePlanes& tile);

  /// Decodes `group_count` groups of a tile, whose escapes take escape_bytes(counts), to `values`.
  ///
  /// @return Whether its codes have just as many escapes and literals as `counts` says. Whatever
  ///         they are, no more is read than TilePlanes says and only the groups are written.
  bool (*decode_tile)(const ConstTilePlanes& tile, std::size_t group_count,
                      const EscapeCounts& counts, const ExponentTables& tables, std::byte* values,
                      DecodedUse use);
};

/// ExponentKernels::count_exponents of all implementations: vectors have nothing to offer here.
void count_exponents_portably(const std::byte* values, std::size_t count, ExponentCounts& counts);

extern const ExponentKernels kPortableExponentKernels;
#ifdef __x86_64__
extern const ExponentKernels kAvx2ExponentKernels;
extern const ExponentKernels kAvx512ExponentKernels;
#endif

}  // namespace trash_panda::format
