// The exponent code in plain C++: the reference that other implementations are compared with.

#include <cstring>

#include "exponent/kernels.h"

namespace trash_panda::format {

namespace {

std::uint16_t portable_load(const std::byte* values, std::size_t i) {
  std::uint16_t value = 0;
  std::memcpy(&value, values + 2 * i, sizeof value);
  return value;
}

/// Packs second-level codes of `exponents` and appends literals; returns how many there are.
std::uint32_t portable_encode_escapes(const std::uint8_t* exponents, std::size_t count,
                                      const ExponentCodes& codes, std::byte* escapes) {
  std::byte* literals = escapes + escape_code_bytes(count);
  std::uint32_t literal_count = 0;
  for (std::size_t i = 0; i < count; i += 8) {
    std::uint32_t octet = 0;
    for (std::size_t k = 0; k < 8 && i + k < count; ++k) {
      const std::uint8_t exponent = exponents[i + k];
      const std::uint32_t code = codes.second[exponent];
      octet |= code << 3 * k;
      literals[literal_count] = std::byte{exponent};
      literal_count += code == kLiteralCode ? 1 : 0;
    }
    std::memcpy(escapes + i / 8 * kEscapeOctetBytes, &octet, kEscapeOctetBytes);
  }
  return literal_count;
}

EscapeCounts portable_encode(const std::byte* values, std::size_t group_count,
                             const ExponentCodes& codes, const TilePlanes& tile) {
  std::array<std::uint8_t, kTileElements + 1> escaped;
  std::uint32_t escape_count = 0;
  for (std::size_t i = 0; i < group_count * kGroupElements; i += 4) {
    unsigned quad = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const unsigned value = portable_load(values, i + k);
      const auto exponent = static_cast<std::uint8_t>(value >> 7U);
      const unsigned code = codes.first[exponent];
      quad |= code << 2 * k;
      tile.rests[i + k] = static_cast<std::byte>((value >> 8U & 0x80U) | (value & 0x7fU));
      escaped[escape_count] = exponent;
      escape_count += code == kEscapeCode ? 1 : 0;
    }
    tile.codes[i / 4] = static_cast<std::byte>(quad);
  }
  return {
      .escape_count = escape_count,
      .literal_count = portable_encode_escapes(escaped.data(), escape_count, codes, tile.escapes)};
}

/// Exponents of a tile's escapes, in order; false when there are more or fewer literals than told.
bool portable_decode_escapes(const std::byte* escapes, const EscapeCounts& counts,
                             const ExponentTables& tables, std::uint8_t* exponents) {
  const std::byte* literal = escapes + escape_code_bytes(counts.escape_count);
  const std::byte* const literals_end = literal + counts.literal_count;
  for (std::size_t i = 0; i < counts.escape_count; i += 8) {
    std::uint32_t octet = 0;
    std::memcpy(&octet, escapes + i / 8 * kEscapeOctetBytes, kEscapeOctetBytes);
    for (std::size_t k = 0; k < 8 && i + k < counts.escape_count; ++k) {
      const std::uint32_t code = octet >> 3 * k & 7U;
      if (code != kLiteralCode) {
        exponents[i + k] = tables.second[code];
      } else if (literal != literals_end) {
        exponents[i + k] = std::to_integer<std::uint8_t>(*literal++);
      } else {
        return false;
      }
    }
  }
  return literal == literals_end;
}

bool portable_decode(const ConstTilePlanes& tile, std::size_t group_count,
                     const EscapeCounts& counts, const ExponentTables& tables, std::byte* values,
                     DecodedUse /*use*/) {
  // Codes may ask for as many escapes as the tile has elements, whatever the counts are.
  std::array<std::uint8_t, kTileElements + 1> escaped;
  if (!portable_decode_escapes(tile.escapes, counts, tables, escaped.data())) {
    return false;
  }
  escaped[counts.escape_count] = 0;
  std::size_t escape_count = 0;
  const std::array<std::uint8_t, 4> first = {tables.first[0], tables.first[1], tables.first[2], 0};
  for (std::size_t i = 0; i < group_count * kGroupElements; ++i) {
    const unsigned code = std::to_integer<unsigned>(tile.codes[i / 4]) >> 2 * (i % 4) & 3U;
    const unsigned rest = std::to_integer<unsigned>(tile.rests[i]);
    const bool is_escaped = code == kEscapeCode;
    const unsigned exponent = is_escaped ? escaped[escape_count] : first[code];
    escape_count += is_escaped ? 1 : 0;
    const auto value =
        static_cast<std::uint16_t>((rest & 0x80U) << 8U | exponent << 7U | (rest & 0x7fU));
    std::memcpy(values + 2 * i, &value, sizeof value);
  }
  return escape_count == counts.escape_count;
}

}  // namespace

void count_exponents_portably(const std::byte* values, std::size_t count, ExponentCounts& counts) {
  // Four tables: neighbours often have the same exponent, and would wait for each other's count.
  std::array<ExponentCounts, 4> parts{};
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    std::uint64_t four = 0;
    std::memcpy(&four, values + 2 * i, sizeof four);
    ++parts[0][four >> 7U & 0xffU];
    ++parts[1][four >> 23U & 0xffU];
    ++parts[2][four >> 39U & 0xffU];
    ++parts[3][four >> 55U & 0xffU];
  }
  for (; i < count; ++i) {
    ++parts[0][portable_load(values, i) >> 7U & 0xffU];
  }
  for (std::size_t exponent = 0; exponent < counts.size(); ++exponent) {
    for (const ExponentCounts& part : parts) {
      counts[exponent] += part[exponent];
    }
  }
}

const ExponentKernels kPortableExponentKernels = {
    .count_exponents = count_exponents_portably,
    .encode_tile = portable_encode,
    .decode_tile = portable_decode,
};

}  // namespace trash_panda::format
