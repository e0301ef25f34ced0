// The exponent code with AVX2, 32 elements at a time. What AVX-512 has instructions for, expanding
// and compressing bytes, is done by shuffles here: no pdep and pext, which are slow on some CPUs.

#ifdef __x86_64__

#include <cstring>

#include <immintrin.h>

#include "exponent/kernels.h"

// Attributes of functions, not flags of the file: inline functions of headers, which the linker
// takes from any one file, must run on every CPU.
#define TP_AVX2 __attribute__((target("avx2,bmi,popcnt")))
#define TP_AVX2_INLINE __attribute__((target("avx2,bmi,popcnt"), always_inline)) inline

namespace trash_panda::format {

namespace {

constexpr std::size_t kAvx2Step = 32;

TP_AVX2_INLINE __m256i avx2_bytes(unsigned byte) {
  return _mm256_set1_epi8(static_cast<char>(byte));
}

TP_AVX2_INLINE __m256i avx2_load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

TP_AVX2_INLINE __m128i avx2_load_half(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

TP_AVX2_INLINE __m256i avx2_load_halves(const void* low, const void* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(avx2_load_half(low)), avx2_load_half(high),
                                 1);
}

/// A table of up to 16 bytes, filled up with zeros, in both halves.
TP_AVX2_INLINE __m256i avx2_table(std::span<const std::uint8_t> table) {
  std::array<std::uint8_t, 16> filled{};
  std::memcpy(filled.data(), table.data(), table.size());
  return _mm256_broadcastsi128_si256(avx2_load_half(filled.data()));
}

/// The bits that avx2_unpack_codes() has codes in: what the code 3, an escape, looks like.
TP_AVX2_INLINE __m256i avx2_code_bits() {
  return _mm256_set1_epi16(0x0c03);
}

/// The first-level table, for codes in bits 0 and 1 as well as in bits 2 and 3.
TP_AVX2_INLINE __m256i avx2_first_table(const std::array<std::uint8_t, kEscapeCode>& first) {
  std::array<std::uint8_t, 16> table{};
  for (std::size_t code = 0; code < first.size(); ++code) {
    table[code] = first[code];
    table[code << 2U] = first[code];
  }
  return avx2_table(table);
}

/// In each byte one of 32 2-bit codes, of the 8 bytes at `codes`: by turns in its bits 0 and 1, and
/// in its bits 2 and 3. That is where a shuffle still finds it.
TP_AVX2_INLINE __m256i avx2_unpack_codes(const std::byte* codes) {
  std::uint64_t packed = 0;
  std::memcpy(&packed, codes, sizeof packed);
  const __m256i four_times = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,  //
                                              4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
  const __m256i x =
      _mm256_shuffle_epi8(_mm256_set1_epi64x(static_cast<long long>(packed)), four_times);
  return _mm256_and_si256(_mm256_blend_epi16(x, _mm256_srli_epi16(x, 4), 0xaa), avx2_code_bits());
}

/// 32 3-bit codes, one per byte, of the 12 bytes at `codes`; reads 16.
TP_AVX2_INLINE __m256i avx2_unpack_escape_codes(const std::byte* codes) {
  const char z = -1;
  const __m256i spread = _mm256_setr_epi8(0, 1, z, z, 1, 2, z, z, 3, 4, z, z, 4, 5, z, z,  //
                                          6, 7, z, z, 7, 8, z, z, 9, 10, z, z, 10, 11, z, z);
  __m256i x = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(avx2_load_half(codes)), spread);
  // 12 bits, which are four codes, in each 32: every other one begins in the middle of a byte.
  x = _mm256_srlv_epi32(x, _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4));
  x = _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi32(0x3f)),
                      _mm256_and_si256(_mm256_slli_epi32(x, 10), _mm256_set1_epi32(0x3f0000)));
  return _mm256_and_si256(_mm256_or_si256(x, _mm256_slli_epi32(x, 5)), avx2_bytes(7));
}

/// Bytes taken in order from `bytes` into the places of each half that `mask` selects (0xff), and
/// zeros elsewhere.
TP_AVX2_INLINE __m256i avx2_expand(__m256i bytes, __m256i mask) {
  // Sums of the mask up to each byte: minus the number of bytes selected so far.
  __m256i sums = _mm256_add_epi8(mask, _mm256_slli_si256(mask, 1));
  sums = _mm256_add_epi8(sums, _mm256_slli_si256(sums, 2));
  sums = _mm256_add_epi8(sums, _mm256_slli_si256(sums, 4));
  sums = _mm256_add_epi8(sums, _mm256_slli_si256(sums, 8));
  // -n becomes the index n - 1; what is not selected 0xff, which a shuffle takes for zero.
  return _mm256_shuffle_epi8(bytes,
                             _mm256_xor_si256(_mm256_and_si256(sums, mask), _mm256_set1_epi8(-1)));
}

/// Joins exponents and rests to 32 values.
template <DecodedUse kUse>
TP_AVX2_INLINE void avx2_store_values(__m256i rests, __m256i exponents, std::byte* values) {
  const __m256i low7 = avx2_bytes(0x7f);
  const __m256i low = _mm256_or_si256(_mm256_and_si256(rests, low7),
                                      _mm256_andnot_si256(low7, _mm256_slli_epi16(exponents, 7)));
  const __m256i high = _mm256_or_si256(_mm256_andnot_si256(low7, rests),
                                       _mm256_and_si256(low7, _mm256_srli_epi16(exponents, 1)));
  const __m256i a = _mm256_unpacklo_epi8(low, high);
  const __m256i b = _mm256_unpackhi_epi8(low, high);
  const __m256i first = _mm256_permute2x128_si256(a, b, 0x20);
  const __m256i second = _mm256_permute2x128_si256(a, b, 0x31);
  auto* const target = reinterpret_cast<__m256i*>(values);
  if constexpr (kUse == DecodedUse::kLater) {
    _mm256_stream_si256(target, first);
    _mm256_stream_si256(target + 1, second);
  } else {
    _mm256_storeu_si256(target, first);
    _mm256_storeu_si256(target + 1, second);
  }
}

/// Appends `base` plus the index of each bit that is set. Few are, so that two are written without
/// a branch, which would often be mispredicted; writes up to two past the last one.
TP_AVX2_INLINE std::uint16_t* avx2_append_indices(std::size_t base, std::uint32_t bits,
                                                  std::uint16_t* to) {
  const int count = _mm_popcnt_u32(bits);
  for (int i = 0; i < 2; ++i, bits &= bits - 1) {
    to[i] = static_cast<std::uint16_t>(base + _tzcnt_u32(bits));
  }
  for (int i = 2; bits != 0; ++i, bits &= bits - 1) {
    to[i] = static_cast<std::uint16_t>(base + _tzcnt_u32(bits));
  }
  return to + count;
}

/// The exponents of a tile's escapes; false when there are more or fewer literals than told.
TP_AVX2 bool avx2_decode_escapes(const std::byte* escapes, const EscapeCounts& counts,
                                 const ExponentTables& tables, std::uint8_t* exponents) {
  const __m256i table = avx2_table(tables.second);
  std::array<std::uint16_t, kTileElements + 2> places;
  std::uint16_t* places_end = places.data();
  for (std::size_t i = 0; i < counts.escape_count; i += kAvx2Step) {
    const __m256i codes = avx2_unpack_escape_codes(escapes + i / 8 * kEscapeOctetBytes);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(exponents + i),
                        _mm256_shuffle_epi8(table, codes));
    auto is_literal = static_cast<std::uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(codes, avx2_bytes(kLiteralCode))));
    const std::size_t left_count = counts.escape_count - i;
    is_literal &= left_count >= kAvx2Step ? ~0U : (1U << left_count) - 1;
    places_end = avx2_append_indices(i, is_literal, places_end);
  }
  if (places_end != places.data() + counts.literal_count) {
    return false;
  }
  const std::byte* const literals = escapes + escape_code_bytes(counts.escape_count);
  for (std::size_t i = 0; i < counts.literal_count; ++i) {
    exponents[places[i]] = std::to_integer<std::uint8_t>(literals[i]);
  }
  return true;
}

template <DecodedUse kUse>
TP_AVX2 bool avx2_decode_groups(const ConstTilePlanes& tile, std::size_t group_count,
                                const EscapeCounts& counts, const ExponentTables& tables,
                                std::byte* values) {
  // Codes may ask for as many escapes as the tile has elements, whatever the counts are; and steps
  // read and write whole vectors.
  alignas(32) std::array<std::uint8_t, kTileElements + 2 * kAvx2Step> exponents;
  if (!avx2_decode_escapes(tile.escapes, counts, tables, exponents.data())) {
    return false;
  }
  const __m256i table = avx2_first_table(tables.first);
  const std::uint8_t* escaped = exponents.data();
  for (std::size_t i = 0; i < group_count * kGroupElements; i += kAvx2Step) {
    const __m256i codes = avx2_unpack_codes(tile.codes + i / 4);
    const __m256i is_escaped = _mm256_cmpeq_epi8(codes, avx2_code_bits());
    const auto bits = static_cast<std::uint32_t>(_mm256_movemask_epi8(is_escaped));
    const __m256i taken = avx2_load_halves(escaped, escaped + _mm_popcnt_u32(bits & 0xffffU));
    escaped += _mm_popcnt_u32(bits);
    avx2_store_values<kUse>(
        avx2_load(tile.rests + i),
        _mm256_or_si256(_mm256_shuffle_epi8(table, codes), avx2_expand(taken, is_escaped)),
        values + 2 * i);
  }
  return escaped == exponents.data() + counts.escape_count;
}

TP_AVX2 bool avx2_decode(const ConstTilePlanes& tile, std::size_t group_count,
                         const EscapeCounts& counts, const ExponentTables& tables,
                         std::byte* values, DecodedUse use) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(values) % sizeof(__m256i) == 0;
  return use == DecodedUse::kLater && is_aligned
             ? avx2_decode_groups<DecodedUse::kLater>(tile, group_count, counts, tables, values)
             : avx2_decode_groups<DecodedUse::kSoon>(tile, group_count, counts, tables, values);
}

/// For each mask of 8 bits the indices of those that are set, in order.
constexpr std::array<std::uint64_t, 256> make_compress_shuffles() {
  std::array<std::uint64_t, 256> shuffles{};
  for (unsigned mask = 0; mask < shuffles.size(); ++mask) {
    unsigned place = 0;
    for (unsigned bit = 0; bit < 8; ++bit) {
      if ((mask >> bit & 1U) != 0) {
        shuffles[mask] |= std::uint64_t{bit} << 8 * place++;
      }
    }
  }
  return shuffles;
}
constexpr std::array<std::uint64_t, 256> kCompressShuffles = make_compress_shuffles();

/// Appends those of 32 bytes whose bits are set; writes up to 8 bytes past the last one.
TP_AVX2_INLINE std::uint8_t* avx2_compress(__m256i bytes, std::uint32_t mask, std::uint8_t* to) {
  alignas(32) std::array<std::uint8_t, kAvx2Step> all;
  _mm256_store_si256(reinterpret_cast<__m256i*>(all.data()), bytes);
  for (std::size_t i = 0; i < kAvx2Step; i += 8, mask >>= 8U) {
    const std::uint32_t octet = mask & 0xffU;
    const __m128i packed = _mm_shuffle_epi8(
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(all.data() + i)),
        _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kCompressShuffles[octet])));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), packed);
    to += _mm_popcnt_u32(octet);
  }
  return to;
}

/// The codes of 32 exponents: their places in the table, or its size.
template <std::size_t kSize>
TP_AVX2_INLINE __m256i avx2_codes_of(__m256i exponents,
                                     const std::array<std::uint8_t, kSize>& table) {
  __m256i codes = avx2_bytes(kSize);
  for (unsigned code = 0; code < kSize; ++code) {
    const __m256i is_it = _mm256_cmpeq_epi8(exponents, avx2_bytes(table[code]));
    codes = _mm256_sub_epi8(codes, _mm256_and_si256(is_it, avx2_bytes(kSize - code)));
  }
  return codes;
}

/// Packs 32 2-bit codes into 8 bytes.
TP_AVX2_INLINE void avx2_pack_codes(__m256i codes, std::byte* to) {
  const __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x0401));
  const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x00100001));
  const __m256i gathered = _mm256_shuffle_epi8(quads, _mm256_set1_epi32(0x0c080400));
  const __m128i packed =
      _mm_unpacklo_epi32(_mm256_castsi256_si128(gathered), _mm256_extracti128_si256(gathered, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), packed);
}

/// Packs 32 3-bit codes into 12 bytes; writes 16.
TP_AVX2_INLINE void avx2_pack_escape_codes(__m256i codes, std::byte* to) {
  const __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x0801));
  const __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x00400001));
  const __m256i octets =
      _mm256_or_si256(_mm256_and_si256(quads, _mm256_set1_epi64x(0xfff)),
                      _mm256_and_si256(_mm256_srli_epi64(quads, 20), _mm256_set1_epi64x(0xfff000)));
  const char z = -1;
  const __m256i gathered = _mm256_shuffle_epi8(
      octets,
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 8, 9, 10, z, z, z, z, z, z, z, z, z, z)));
  const __m128i packed = _mm_or_si128(_mm256_castsi256_si128(gathered),
                                      _mm_slli_si128(_mm256_extracti128_si256(gathered, 1), 6));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), packed);
}

TP_AVX2 std::uint32_t avx2_encode_escapes(const std::uint8_t* exponents, std::size_t count,
                                          const ExponentTables& tables, std::byte* escapes) {
  // Literals are put behind the codes when those no longer overwrite what follows them.
  std::array<std::uint8_t, kTileElements + kAvx2Step> literals;
  std::uint8_t* literal = literals.data();
  for (std::size_t i = 0; i < count; i += kAvx2Step) {
    const __m256i exponent = avx2_load(exponents + i);
    const __m256i codes = avx2_codes_of(exponent, tables.second);
    avx2_pack_escape_codes(codes, escapes + i / 8 * kEscapeOctetBytes);
    const auto is_literal = static_cast<std::uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(codes, avx2_bytes(kLiteralCode))));
    if (is_literal != 0) {
      literal = avx2_compress(exponent, is_literal, literal);
    }
  }
  const auto literal_count = static_cast<std::size_t>(literal - literals.data());
  std::memcpy(escapes + escape_code_bytes(count), literals.data(), literal_count);
  return static_cast<std::uint32_t>(literal_count);
}

TP_AVX2 EscapeCounts avx2_encode(const std::byte* values, std::size_t group_count,
                                 const ExponentCodes& codes_of, const TilePlanes& tile) {
  std::array<std::uint8_t, kTileElements + kAvx2Step> escaped;
  std::uint8_t* escaped_end = escaped.data();
  const __m256i low_byte = _mm256_set1_epi16(0xff);
  for (std::size_t i = 0; i < group_count * kGroupElements; i += kAvx2Step) {
    const __m256i a = avx2_load(values + 2 * i);
    const __m256i b = avx2_load(values + 2 * i + sizeof a);
    // Packing takes from the halves of both in turn; the permutation puts that in order.
    const __m256i exponents = _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_and_si256(_mm256_srli_epi16(a, 7), low_byte),
                            _mm256_and_si256(_mm256_srli_epi16(b, 7), low_byte)),
        0xd8);
    const __m256i lows = _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_and_si256(a, low_byte), _mm256_and_si256(b, low_byte)), 0xd8);
    const __m256i highs = _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8)), 0xd8);
    const __m256i low7 = avx2_bytes(0x7f);
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(tile.rests + i),
        _mm256_or_si256(_mm256_and_si256(low7, lows), _mm256_andnot_si256(low7, highs)));
    const __m256i codes = avx2_codes_of(exponents, codes_of.tables.first);
    avx2_pack_codes(codes, tile.codes + i / 4);
    const auto is_escaped = static_cast<std::uint32_t>(
        _mm256_movemask_epi8(_mm256_cmpeq_epi8(codes, avx2_bytes(kEscapeCode))));
    escaped_end = avx2_compress(exponents, is_escaped, escaped_end);
  }
  const auto escape_count = static_cast<std::size_t>(escaped_end - escaped.data());
  // What fills up the last step has the code 0, which is what unused codes must be.
  std::memset(escaped_end, codes_of.tables.second[0], kAvx2Step);
  return {.escape_count = static_cast<std::uint32_t>(escape_count),
          .literal_count =
              avx2_encode_escapes(escaped.data(), escape_count, codes_of.tables, tile.escapes)};
}

}  // namespace

const ExponentKernels kAvx2ExponentKernels = {
    .count_exponents = count_exponents_portably,
    .encode_tile = avx2_encode,
    .decode_tile = avx2_decode,
};

}  // namespace trash_panda::format

#undef TP_AVX2
#undef TP_AVX2_INLINE

#endif  // __x86_64__
