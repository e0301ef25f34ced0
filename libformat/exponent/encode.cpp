#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "exponent/chunk.h"

namespace trash_panda::format {

namespace {

/// The ten most frequent exponents, the smaller one first where two are as frequent.
ExponentTables choose_tables(const ExponentCounts& counts) {
  std::array<std::uint8_t, 256> exponents{};
  std::iota(exponents.begin(), exponents.end(), std::uint8_t{0});
  constexpr std::size_t kCodedCount = kEscapeCode + kLiteralCode;
  std::partial_sort(exponents.begin(), exponents.begin() + kCodedCount, exponents.end(),
                    [&](std::uint8_t a, std::uint8_t b) {
                      return counts[a] != counts[b] ? counts[a] > counts[b] : a < b;
                    });
  ExponentTables tables{};
  std::copy_n(exponents.begin(), kEscapeCode, tables.first.begin());
  std::copy_n(exponents.begin() + kEscapeCode, kLiteralCode, tables.second.begin());
  return tables;
}

ExponentCodes invert_tables(const ExponentTables& tables) {
  ExponentCodes codes{.tables = tables, .first = {}, .second = {}};
  codes.first.fill(kEscapeCode);
  codes.second.fill(kLiteralCode);
  for (std::size_t code = 0; code < tables.first.size(); ++code) {
    codes.first[tables.first[code]] = static_cast<std::uint8_t>(code);
  }
  for (std::size_t code = 0; code < tables.second.size(); ++code) {
    codes.second[tables.second[code]] = static_cast<std::uint8_t>(code);
  }
  return codes;
}

/// The most that the escapes of a chunk take, whatever tiles they are in.
std::size_t escape_bytes_max(const ExponentCounts& counts, const ExponentCodes& codes,
                             std::size_t tile_count) {
  std::size_t escape_count = 0;
  std::size_t literal_count = 0;
  for (std::size_t exponent = 0; exponent < counts.size(); ++exponent) {
    const bool is_escaped = codes.first[exponent] == kEscapeCode;
    escape_count += is_escaped ? counts[exponent] : 0;
    literal_count += is_escaped && codes.second[exponent] == kLiteralCode ? counts[exponent] : 0;
  }
  // Each tile but the last may fill up to seven codes; those are at most an octet each.
  return escape_code_bytes(escape_count) + tile_count * kEscapeOctetBytes + literal_count;
}

std::size_t write_raw_chunk(std::span<const std::byte> raw, std::size_t element_count,
                            std::byte* chunk) {
  const std::size_t size_bytes = raw_chunk_bytes(raw.size());
  write_chunk_head({.coded_bytes = static_cast<std::uint32_t>(size_bytes),
                    .element_count = static_cast<std::uint32_t>(element_count),
                    .form = ChunkForm::kRaw,
                    .tables = {}},
                   chunk);
  std::memset(chunk + kTileRecordsOffset, 0, kExponentChunkHeadBytes - kTileRecordsOffset);
  std::memcpy(chunk + kExponentChunkHeadBytes, raw.data(), raw.size());
  std::memset(chunk + kExponentChunkHeadBytes + raw.size(), 0,
              size_bytes - kExponentChunkHeadBytes - raw.size());
  return size_bytes;
}

/// Codes all tiles and returns the offset at which their escapes end.
std::size_t encode_tiles(const std::byte* values, std::size_t element_count,
                         const ChunkLayout& layout, const ExponentTables& tables,
                         const ExponentKernels& kernels, std::byte* chunk) {
  const ExponentCodes codes = invert_tables(tables);
  std::size_t escapes = layout.escapes;
  for (std::size_t tile = 0; tile < layout.tile_count; ++tile) {
    const std::size_t begin = tile * kTileElements;
    const std::size_t count = std::min(kTileElements, element_count - begin);
    const std::size_t group_count = (count + kGroupElements - 1) / kGroupElements;
    const std::byte* source = values + 2 * begin;
    std::array<std::uint16_t, kTileElements> filled;
    if (count % kGroupElements != 0) {
      // Filled up with what has the code 0 and nothing else.
      filled.fill(static_cast<std::uint16_t>(tables.first[0] << 7U));
      std::memcpy(filled.data(), source, 2 * count);
      source = std::as_bytes(std::span(filled)).data();
    }
    const EscapeCounts counts = kernels.encode_tile(
        source, group_count, codes,
        {chunk + layout.rests + begin, chunk + layout.codes + begin / 4, chunk + escapes});
    write_tile_record(counts, tile, chunk);
    escapes += escape_bytes(counts);
  }
  return escapes;
}

/// Splits 32-bit elements into their lower and upper halves.
void split_halves(std::span<const std::byte> raw, std::byte* lower, std::byte* upper) {
  for (std::size_t i = 0; i < raw.size() / 4; ++i) {
    std::memcpy(lower + 2 * i, raw.data() + 4 * i, 2);
    std::memcpy(upper + 2 * i, raw.data() + 4 * i + 2, 2);
  }
}

/// Codes one chunk. @param upper  Room for the upper halves of its elements, where they have any.
std::size_t encode_chunk(Dtype dtype, std::span<const std::byte> raw,
                         const ExponentKernels& kernels, std::byte* upper, std::byte* chunk) {
  const std::size_t element_count = raw.size() / exponent_element_bytes(dtype);
  const ChunkForm form = dtype == Dtype::kF32 ? ChunkForm::kCodedF32 : ChunkForm::kCodedBf16;
  const ChunkLayout layout = chunk_layout(form, element_count);
  if (coded_chunk_bytes(layout.escapes) >= raw_chunk_bytes(raw.size())) {
    return write_raw_chunk(raw, element_count, chunk);
  }
  const std::byte* values = raw.data();
  if (form == ChunkForm::kCodedF32) {
    split_halves(raw, chunk + layout.lower_halves, upper);
    values = upper;
  }
  ExponentCounts counts{};
  kernels.count_exponents(values, element_count, counts);
  const ExponentTables tables = choose_tables(counts);
  const std::size_t escapes_max =
      escape_bytes_max(counts, invert_tables(tables), layout.tile_count);
  if (coded_chunk_bytes(layout.escapes + escapes_max) >= raw_chunk_bytes(raw.size())) {
    return write_raw_chunk(raw, element_count, chunk);
  }
  std::memset(chunk, 0, layout.rests);
  const std::size_t end = encode_tiles(values, element_count, layout, tables, kernels, chunk);
  const std::size_t size_bytes = coded_chunk_bytes(end);
  std::memset(chunk + end, 0, size_bytes - end);
  if (form == ChunkForm::kCodedF32) {
    const std::size_t lower_end = layout.lower_halves + 2 * element_count;
    std::memset(chunk + lower_end, 0, layout.escapes - lower_end);
  }
  write_chunk_head({.coded_bytes = static_cast<std::uint32_t>(size_bytes),
                    .element_count = static_cast<std::uint32_t>(element_count),
                    .form = form,
                    .tables = tables},
                   chunk);
  return size_bytes;
}

}  // namespace

bool has_exponent_code(Dtype dtype) {
  return dtype == Dtype::kBf16 || dtype == Dtype::kF32;
}

std::uint64_t exponent_coded_bytes_max(Dtype dtype, std::uint64_t element_count) {
  const std::uint64_t element_bytes = exponent_element_bytes(dtype);
  const std::uint64_t full_count = element_count / kExponentChunkElements;
  const std::uint64_t rest_count = element_count % kExponentChunkElements;
  return full_count * raw_chunk_bytes(kExponentChunkElements * element_bytes) +
         (rest_count == 0 ? 0 : raw_chunk_bytes(rest_count * element_bytes));
}

std::uint64_t encode_exponents(Dtype dtype, std::span<const std::byte> raw,
                               std::span<std::byte> coded,
                               const ExponentImplementation& implementation) {
  const std::size_t element_bytes = exponent_element_bytes(dtype);
  TP_ASSERT(implementation.is_supported);
  TP_ASSERT(raw.size() % element_bytes == 0);
  TP_ASSERT(coded.size() >= exponent_coded_bytes_max(dtype, raw.size() / element_bytes));
  const auto upper = std::make_unique<std::byte[]>(
      dtype == Dtype::kF32 ? std::min<std::size_t>(kExponentChunkElements * 2, raw.size() / 2) : 0);
  std::size_t coded_bytes = 0;
  for (std::size_t at = 0; at < raw.size(); at += kExponentChunkElements * element_bytes) {
    const std::size_t size_bytes =
        std::min<std::size_t>(kExponentChunkElements * element_bytes, raw.size() - at);
    coded_bytes += encode_chunk(dtype, raw.subspan(at, size_bytes), *implementation.kernels,
                                upper.get(), coded.data() + coded_bytes);
  }
  return coded_bytes;
}

}  // namespace trash_panda::format
