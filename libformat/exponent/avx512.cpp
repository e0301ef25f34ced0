// The exponent code with AVX-512 (F, BW, VBMI, VBMI2), 64 elements at a time: multishift takes
// codes apart, permutations look exponents up, expand and compress move escapes in and out.

#ifdef __x86_64__

#include <cstring>

#include <immintrin.h>

#include "exponent/kernels.h"

#define TP_AVX512 __attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vbmi2,popcnt")))
#define TP_AVX512_INLINE \
  __attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vbmi2,popcnt"), always_inline)) inline

namespace trash_panda::format {

namespace {

constexpr std::size_t kAvx512Step = 64;
// "maskz" with a mask of ones is the same instruction without its mask. Where it is written, g++ 12
// has a false alarm of something uninitialised in its header for the plain form (GCC bug 105593).
constexpr __mmask64 kAvx512AllBytes = ~__mmask64{0};
constexpr __mmask32 kAvx512AllWords = ~__mmask32{0};
constexpr __mmask16 kAvx512AllDwords = 0xffff;
constexpr __mmask8 kAvx512AllQwords = 0xff;
using Avx512Bytes = std::array<std::uint8_t, kAvx512Step>;

TP_AVX512_INLINE __m512i avx512_bytes(unsigned byte) {
  return _mm512_set1_epi8(static_cast<char>(byte));
}

TP_AVX512_INLINE std::size_t avx512_count(__mmask64 mask) {
  return static_cast<std::size_t>(_mm_popcnt_u64(mask));
}

/// The first `count` of 64 bits; all of them when it is more.
TP_AVX512_INLINE __mmask64 avx512_first(std::size_t count) {
  return count >= kAvx512Step ? kAvx512AllBytes : (__mmask64{1} << count) - 1;
}

/// A table to look codes up in.
TP_AVX512_INLINE __m512i avx512_table(std::span<const std::uint8_t> table) {
  return _mm512_maskz_loadu_epi8(avx512_first(table.size()), table.data());
}

/// Where, in each 64 bits, codes of that many bits begin.
constexpr Avx512Bytes avx512_shifts(unsigned code_bits) {
  Avx512Bytes shifts{};
  for (unsigned i = 0; i < kAvx512Step; ++i) {
    shifts[i] = static_cast<std::uint8_t>(code_bits * (i % 8));
  }
  return shifts;
}
constexpr Avx512Bytes kAvx512CodeShifts = avx512_shifts(2);
constexpr Avx512Bytes kAvx512EscapeShifts = avx512_shifts(3);

/// Indices that put each three bytes of the first 24 into 64 bits of their own.
constexpr Avx512Bytes make_avx512_spread() {
  Avx512Bytes spread{};
  for (unsigned i = 0; i < kAvx512Step; ++i) {
    spread[i] = static_cast<std::uint8_t>(i % 8 < 3 ? i / 8 * 3 + i % 8 : kAvx512Step - 1);
  }
  return spread;
}
constexpr Avx512Bytes kAvx512Spread = make_avx512_spread();

/// Indices that put the first three bytes of each 64 bits behind each other.
constexpr Avx512Bytes make_avx512_gather() {
  Avx512Bytes gather{};
  for (unsigned i = 0; i < 24; ++i) {
    gather[i] = static_cast<std::uint8_t>(i / 3 * 8 + i % 3);
  }
  return gather;
}
constexpr Avx512Bytes kAvx512Gather = make_avx512_gather();

/// Joins exponents and rests to 64 values.
template <DecodedUse kUse>
TP_AVX512_INLINE void avx512_store_values(__m512i rests, __m512i exponents, std::byte* values) {
  const __m512i high_bit = avx512_bytes(0x80);
  // 0xca: where the first has a one that of the second, else that of the third.
  const __m512i low =
      _mm512_ternarylogic_epi64(high_bit, _mm512_slli_epi16(exponents, 7), rests, 0xca);
  const __m512i high =
      _mm512_ternarylogic_epi64(high_bit, rests, _mm512_srli_epi16(exponents, 1), 0xca);
  const __m512i a = _mm512_unpacklo_epi8(low, high);
  const __m512i b = _mm512_unpackhi_epi8(low, high);
  const __m512i first =
      _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), b);
  const __m512i second =
      _mm512_permutex2var_epi64(a, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), b);
  if constexpr (kUse == DecodedUse::kLater) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(values), first);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(values + sizeof first), second);
  } else {
    _mm512_storeu_si512(values, first);
    _mm512_storeu_si512(values + sizeof first, second);
  }
}

/// The exponents of a tile's escapes; false when there are more or fewer literals than told.
TP_AVX512 bool avx512_decode_escapes(const std::byte* escapes, const EscapeCounts& counts,
                                     const ExponentTables& tables, std::uint8_t* exponents) {
  const __m512i table = avx512_table(tables.second);
  const __m512i spread = _mm512_loadu_si512(kAvx512Spread.data());
  const __m512i shifts = _mm512_loadu_si512(kAvx512EscapeShifts.data());
  const __m512i three_bits = avx512_bytes(7);
  const std::byte* literal = escapes + escape_code_bytes(counts.escape_count);
  const std::byte* const literals_end = literal + counts.literal_count;
  for (std::size_t i = 0; i < counts.escape_count; i += kAvx512Step) {
    const __m512i packed =
        _mm512_maskz_loadu_epi8(avx512_first(24), escapes + i / 8 * kEscapeOctetBytes);
    const __m512i codes =
        _mm512_and_si512(_mm512_maskz_multishift_epi64_epi8(
                             kAvx512AllBytes, shifts,
                             _mm512_maskz_permutexvar_epi8(kAvx512AllBytes, spread, packed)),
                         three_bits);
    const __mmask64 is_literal = _mm512_mask_cmpeq_epi8_mask(avx512_first(counts.escape_count - i),
                                                             codes, avx512_bytes(kLiteralCode));
    __m512i decoded = _mm512_maskz_permutexvar_epi8(kAvx512AllBytes, codes, table);
    if (is_literal != 0) {
      const std::size_t count = avx512_count(is_literal);
      if (count > static_cast<std::size_t>(literals_end - literal)) {
        return false;
      }
      // Reads up to 63 bytes of slack.
      decoded = _mm512_mask_expand_epi8(decoded, is_literal, _mm512_loadu_si512(literal));
      literal += count;
    }
    _mm512_storeu_si512(exponents + i, decoded);
  }
  return literal == literals_end;
}

template <DecodedUse kUse>
TP_AVX512 bool avx512_decode_groups(const ConstTilePlanes& tile, std::size_t group_count,
                                    const EscapeCounts& counts, const ExponentTables& tables,
                                    std::byte* values) {
  // Codes may ask for as many escapes as the tile has elements, whatever the counts are; and steps
  // read and write whole vectors.
  alignas(64) std::array<std::uint8_t, kTileElements + 2 * kAvx512Step> exponents;
  if (!avx512_decode_escapes(tile.escapes, counts, tables, exponents.data())) {
    return false;
  }
  const __m512i table = avx512_table(tables.first);
  const __m512i shifts = _mm512_loadu_si512(kAvx512CodeShifts.data());
  const __m512i two_bits = avx512_bytes(3);
  const std::uint8_t* escaped = exponents.data();
  for (std::size_t i = 0; i < group_count * kAvx512Step; i += kAvx512Step) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tile.codes + i / 4));
    const __m512i codes = _mm512_and_si512(
        _mm512_maskz_multishift_epi64_epi8(kAvx512AllBytes, shifts,
                                           _mm512_maskz_cvtepu16_epi64(kAvx512AllQwords, packed)),
        two_bits);
    const __mmask64 is_escaped = _mm512_cmpeq_epi8_mask(codes, two_bits);
    const __m512i decoded =
        _mm512_mask_expand_epi8(_mm512_maskz_permutexvar_epi8(kAvx512AllBytes, codes, table),
                                is_escaped, _mm512_loadu_si512(escaped));
    escaped += avx512_count(is_escaped);
    avx512_store_values<kUse>(_mm512_loadu_si512(tile.rests + i), decoded, values + 2 * i);
  }
  return escaped == exponents.data() + counts.escape_count;
}

TP_AVX512 bool avx512_decode(const ConstTilePlanes& tile, std::size_t group_count,
                             const EscapeCounts& counts, const ExponentTables& tables,
                             std::byte* values, DecodedUse use) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(values) % sizeof(__m512i) == 0;
  return use == DecodedUse::kLater && is_aligned
             ? avx512_decode_groups<DecodedUse::kLater>(tile, group_count, counts, tables, values)
             : avx512_decode_groups<DecodedUse::kSoon>(tile, group_count, counts, tables, values);
}

/// The low bytes of 64 16-bit values.
TP_AVX512_INLINE __m512i avx512_narrow(__m512i a, __m512i b) {
  return _mm512_maskz_inserti64x4(
      kAvx512AllQwords, _mm512_castsi256_si512(_mm512_maskz_cvtepi16_epi8(kAvx512AllWords, a)),
      _mm512_maskz_cvtepi16_epi8(kAvx512AllWords, b), 1);
}

/// 256 codes in registers.
struct Avx512Codes {
  __m512i quarters[4];
};

TP_AVX512_INLINE Avx512Codes avx512_load_codes(const std::array<std::uint8_t, 256>& codes) {
  return {{_mm512_loadu_si512(codes.data()), _mm512_loadu_si512(codes.data() + 64),
           _mm512_loadu_si512(codes.data() + 128), _mm512_loadu_si512(codes.data() + 192)}};
}

TP_AVX512_INLINE __m512i avx512_codes_of(__m512i exponents, const Avx512Codes& codes) {
  return _mm512_mask_blend_epi8(
      _mm512_movepi8_mask(exponents),
      _mm512_permutex2var_epi8(codes.quarters[0], exponents, codes.quarters[1]),
      _mm512_permutex2var_epi8(codes.quarters[2], exponents, codes.quarters[3]));
}

/// Appends the bytes that `mask` selects; writes a whole vector.
TP_AVX512_INLINE std::uint8_t* avx512_compress(__m512i bytes, __mmask64 mask, std::uint8_t* to) {
  _mm512_storeu_si512(to, _mm512_maskz_compress_epi8(mask, bytes));
  return to + avx512_count(mask);
}

TP_AVX512 std::uint32_t avx512_encode_escapes(const std::uint8_t* exponents, std::size_t count,
                                              const ExponentCodes& codes_of, std::byte* escapes) {
  const Avx512Codes second = avx512_load_codes(codes_of.second);
  const __m512i gather = _mm512_loadu_si512(kAvx512Gather.data());
  // Literals are put behind the codes when those no longer overwrite what follows them.
  std::array<std::uint8_t, kTileElements + kAvx512Step> literals;
  std::uint8_t* literal = literals.data();
  for (std::size_t i = 0; i < count; i += kAvx512Step) {
    const __m512i exponent = _mm512_loadu_si512(exponents + i);
    const __m512i codes = avx512_codes_of(exponent, second);
    literal = avx512_compress(exponent, _mm512_cmpeq_epi8_mask(codes, avx512_bytes(kLiteralCode)),
                              literal);
    const __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x0801));
    const __m512i quads = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00400001));
    const __m512i octets =
        _mm512_or_si512(_mm512_and_si512(quads, _mm512_set1_epi64(0xfff)),
                        _mm512_and_si512(_mm512_maskz_srli_epi64(kAvx512AllQwords, quads, 20),
                                         _mm512_set1_epi64(0xfff000)));
    _mm512_mask_storeu_epi8(escapes + i / 8 * kEscapeOctetBytes, avx512_first(24),
                            _mm512_maskz_permutexvar_epi8(kAvx512AllBytes, gather, octets));
  }
  const auto literal_count = static_cast<std::size_t>(literal - literals.data());
  std::memcpy(escapes + escape_code_bytes(count), literals.data(), literal_count);
  return static_cast<std::uint32_t>(literal_count);
}

TP_AVX512 EscapeCounts avx512_encode(const std::byte* values, std::size_t group_count,
                                     const ExponentCodes& codes_of, const TilePlanes& tile) {
  const Avx512Codes first = avx512_load_codes(codes_of.first);
  std::array<std::uint8_t, kTileElements + kAvx512Step> escaped;
  std::uint8_t* escaped_end = escaped.data();
  const __m512i high_bit = avx512_bytes(0x80);
  for (std::size_t i = 0; i < group_count * kAvx512Step; i += kAvx512Step) {
    const __m512i a = _mm512_loadu_si512(values + 2 * i);
    const __m512i b = _mm512_loadu_si512(values + 2 * i + sizeof a);
    const __m512i exponents = avx512_narrow(_mm512_srli_epi16(a, 7), _mm512_srli_epi16(b, 7));
    const __m512i highs = avx512_narrow(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8));
    _mm512_storeu_si512(tile.rests + i,
                        _mm512_ternarylogic_epi64(high_bit, highs, avx512_narrow(a, b), 0xca));
    const __m512i codes = avx512_codes_of(exponents, first);
    escaped_end = avx512_compress(
        exponents, _mm512_cmpeq_epi8_mask(codes, avx512_bytes(kEscapeCode)), escaped_end);
    const __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x0401));
    const __m512i quads = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00100001));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(tile.codes + i / 4),
                     _mm512_maskz_cvtepi32_epi8(kAvx512AllDwords, quads));
  }
  const auto escape_count = static_cast<std::size_t>(escaped_end - escaped.data());
  // What fills up the last step has the code 0, which is what unused codes must be.
  std::memset(escaped_end, codes_of.tables.second[0], kAvx512Step);
  return {
      .escape_count = static_cast<std::uint32_t>(escape_count),
      .literal_count = avx512_encode_escapes(escaped.data(), escape_count, codes_of, tile.escapes)};
}

}  // namespace

const ExponentKernels kAvx512ExponentKernels = {
    .count_exponents = count_exponents_portably,
    .encode_tile = avx512_encode,
    .decode_tile = avx512_decode,
};

}  // namespace trash_panda::format

#undef TP_AVX512
#undef TP_AVX512_INLINE

#endif  // __x86_64__
