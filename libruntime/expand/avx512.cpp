// expand() with AVX-512 F, BW and VL, 16 elements at a time, and BF16 where there is that.

#ifdef __x86_64__

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <immintrin.h>

#include "expand/run_kernels.h"

// Attributes of functions, not flags of the file: inline functions of headers, which the linker
// takes from any one file, must run on every CPU.
#define TP_LANES __attribute__((target("avx512f,avx512bw,avx512vl")))
#define TP_LANES_INLINE __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline)) inline

#define TP_ROUNDING_LANES __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace trash_panda::runtime {

namespace avx512 {

namespace {

// "maskz" with a mask of ones is the same instruction without its mask; where it is written, g++ 12
// does not warn of an operand that is never used.
constexpr __mmask16 kAllLanes = 0xffff;

struct Avx512Lanes {
  using Floats = __m512;
  static constexpr std::uint64_t kCount = 16;

  TP_LANES_INLINE static Floats splat(float value) { return _mm512_set1_ps(value); }
  TP_LANES_INLINE static Floats load(const float* from) { return _mm512_loadu_ps(from); }
  TP_LANES_INLINE static Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }

  TP_LANES_INLINE static __m256i load_halves(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  /// 8-bit codes, each in 16 bits.
  TP_LANES_INLINE static __m256i load_codes(const std::byte* from) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  struct E4M3Source {
    static constexpr std::uint64_t kBytes = 1;
    /// As F16 whose exponents are 8 less, which holds every value, subnormal ones too.
    TP_LANES_INLINE static Floats decode(const std::byte* from) {
      const __m256i codes = load_codes(from);
      const __m256i magnitudes = _mm256_and_si256(codes, _mm256_set1_epi16(0x7f));
      const __m256i is_nan = _mm256_cmpeq_epi16(magnitudes, _mm256_set1_epi16(0x7f));
      const __m256i signs = _mm256_slli_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(0x80)), 8);
      const __m256i numbers = _mm256_or_si256(_mm256_slli_epi16(magnitudes, 7), signs);
      // With the last bit of the exponent, too, it is the NaN of F16.
      const __m256i halves =
          _mm256_or_si256(numbers, _mm256_and_si256(is_nan, _mm256_set1_epi16(0x4000)));
      return _mm512_mul_ps(_mm512_maskz_cvtph_ps(kAllLanes, halves), _mm512_set1_ps(kHalfFactor));
    }
    static constexpr float kHalfFactor = 0x1p8F;
    /// Magnitudes from here on are NaN.
    static constexpr char kFirstSpecial = 0x7f;
    TP_LANES_INLINE static __m256i even_halves(__m256i codes) {
      return odd_halves(_mm256_slli_epi16(codes, 8));
    }
    TP_LANES_INLINE static __m256i odd_halves(__m256i codes) {
      return _mm256_and_si256(_mm256_srai_epi16(codes, 1), _mm256_set1_epi16(kHalfBits));
    }
    /// Sign, the lower bits of the exponent, and the upper ones of the mantissa.
    static constexpr auto kHalfBits = static_cast<short>(0xbf80);
    /// @param codes  Each in 16 bits, which its sign fills up.
    TP_LANES_INLINE static __m512i halves(__m512i codes) {
      return _mm512_and_si512(_mm512_slli_epi16(codes, 7), _mm512_set1_epi16(kHalfBits));
    }
  };

  struct E5M2Source {
    static constexpr std::uint64_t kBytes = 1;
    /// They are the upper halves of F16.
    TP_LANES_INLINE static Floats decode(const std::byte* from) {
      return _mm512_maskz_cvtph_ps(kAllLanes, _mm256_slli_epi16(load_codes(from), 8));
    }
    static constexpr float kHalfFactor = 1;
    /// Magnitudes from here on are infinity and NaN.
    static constexpr char kFirstSpecial = 0x7c;
    TP_LANES_INLINE static __m256i even_halves(__m256i codes) {
      return _mm256_slli_epi16(codes, 8);
    }
    TP_LANES_INLINE static __m256i odd_halves(__m256i codes) {
      return _mm256_and_si256(codes, _mm256_set1_epi16(static_cast<short>(0xff00)));
    }
    TP_LANES_INLINE static __m512i halves(__m512i codes) { return _mm512_slli_epi16(codes, 8); }
  };

  struct Bf16Source {
    static constexpr std::uint64_t kBytes = 2;
    TP_LANES_INLINE static Floats decode(const std::byte* from) {
      return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(
          kAllLanes, _mm512_maskz_cvtepu16_epi32(kAllLanes, load_halves(from)), 16));
    }
  };

  struct F16Source {
    static constexpr std::uint64_t kBytes = 2;
    TP_LANES_INLINE static Floats decode(const std::byte* from) {
      return _mm512_maskz_cvtph_ps(kAllLanes, load_halves(from));
    }
  };

  struct F32Source {
    static constexpr std::uint64_t kBytes = 4;
    TP_LANES_INLINE static Floats decode(const std::byte* from) {
      return _mm512_loadu_ps(reinterpret_cast<const float*>(from));
    }
  };

  template <bool kPassesCaches>
  TP_LANES_INLINE static void store_halves(__m256i halves, std::byte* to) {
    if constexpr (kPassesCaches) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to), halves);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
    }
  }

  /// BF16 in the upper halves, of values that are no NaN.
  TP_LANES_INLINE static __m512i round_to_bf16(Floats values) {
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i last_bits =
        _mm512_and_si512(_mm512_maskz_srli_epi32(kAllLanes, bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), last_bits);
  }

  struct Bf16Target {
    static constexpr std::uint64_t kBytes = 2;
    /// As cuda::encode_bf16().
    template <bool kPassesCaches>
    TP_LANES_INLINE static void encode(Floats values, std::byte* to) {
      const __m512i sums = round_to_bf16(values);
      const __mmask16 is_nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
      const __m512i rounded = _mm512_mask_mov_epi32(_mm512_maskz_srli_epi32(kAllLanes, sums, 16),
                                                    is_nan, _mm512_set1_epi32(0xffff));
      store_halves<kPassesCaches>(_mm512_maskz_cvtepi32_epi16(kAllLanes, rounded), to);
    }
  };

  struct F16Target {
    static constexpr std::uint64_t kBytes = 2;
    template <bool kPassesCaches>
    TP_LANES_INLINE static void encode(Floats values, std::byte* to) {
      store_halves<kPassesCaches>(
          _mm512_maskz_cvtps_ph(kAllLanes, values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
          to);
    }
  };

  struct F32Target {
    static constexpr std::uint64_t kBytes = 4;
    template <bool kPassesCaches>
    TP_LANES_INLINE static void encode(Floats values, std::byte* to) {
      if constexpr (kPassesCaches) {
        _mm512_stream_ps(reinterpret_cast<float*>(to), values);
      } else {
        _mm512_storeu_ps(reinterpret_cast<float*>(to), values);
      }
    }
  };

  /// 8-bit codes two by two in 16 bits.
  using CodePairs = __m256i;

  /// Scales two vectors of 8-bit codes to BF16. The even ones make one vector of products and the
  /// odd ones another, whose halves then need no shuffle.
  ///
  /// @param largest  Takes up the magnitudes.
  template <class Source, bool kPassesCaches>
  TP_LANES_INLINE static void scale_pairs(const std::byte* from, std::byte* to, Floats factor,
                                          CodePairs& largest) {
    constexpr __mmask32 kOddHalves = 0xaaaa'aaaa;
    const __m256i codes = load_halves(from);
    largest = _mm256_max_epu8(largest, _mm256_and_si256(codes, _mm256_set1_epi8(0x7f)));
    const Floats even =
        multiply(_mm512_maskz_cvtph_ps(kAllLanes, Source::even_halves(codes)), factor);
    const Floats odd =
        multiply(_mm512_maskz_cvtph_ps(kAllLanes, Source::odd_halves(codes)), factor);
    const __m512i result = _mm512_mask_blend_epi16(
        kOddHalves, _mm512_maskz_srli_epi32(kAllLanes, round_to_bf16(even), 16),
        round_to_bf16(odd));
    if constexpr (kPassesCaches) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), result);
    } else {
      _mm512_storeu_si512(reinterpret_cast<__m512i*>(to), result);
    }
  }
  TP_LANES_INLINE static CodePairs no_codes() { return _mm256_setzero_si256(); }
  TP_LANES_INLINE static bool has_special(CodePairs largest, char first_special) {
    const __m256i capped = _mm256_max_epu8(largest, _mm256_set1_epi8(first_special));
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(capped, largest)) != 0;
  }
};

#define TP_LANES_STRUCT Avx512Lanes
#include "expand/vector_runs.inl"

/// From here on it pays to work out first what every code becomes.
constexpr std::uint64_t kLookUpElementsMin = 1024;

/// RunKernels::make_table
template <class Source>
TP_LANES void make_magnitudes(float scale, MagnitudeTable& table) {
  std::array<std::byte, MagnitudeTable::kCodes> codes;
  for (std::size_t code = 0; code < codes.size(); ++code) {
    codes[code] = static_cast<std::byte>(code);
  }
  run_elements<Source, Lanes::Bf16Target, Scaling::kOne>({.from = codes.data(),
                                                          .to = table.results.data(),
                                                          .count = codes.size(),
                                                          .passes_caches = false},
                                                         &scale);
}

/// Whole steps.
template <bool kPassesCaches>
TP_LANES_INLINE void look_up(const std::byte* from, std::byte* to, std::uint64_t count,
                             const MagnitudeTable& table) {
  const auto* const quarters = reinterpret_cast<const __m512i*>(table.results.data());
  const __m512i first = _mm512_load_si512(quarters);
  const __m512i second = _mm512_load_si512(quarters + 1);
  const __m512i third = _mm512_load_si512(quarters + 2);
  const __m512i fourth = _mm512_load_si512(quarters + 3);
  for (std::uint64_t at = 0; at < count; at += kLookUpStep) {
    const __m512i codes = _mm512_cvtepu8_epi16(Lanes::load_halves(from + at));
    // By the lower six bits of the code; the seventh chooses between the two.
    const __m512i lower = _mm512_permutex2var_epi16(first, codes, second);
    const __m512i upper = _mm512_permutex2var_epi16(third, codes, fourth);
    const __mmask32 is_upper = _mm512_test_epi16_mask(codes, _mm512_set1_epi16(0x40));
    const __m512i signs = _mm512_and_si512(_mm512_slli_epi16(codes, 8),
                                           _mm512_set1_epi16(static_cast<short>(0x8000)));
    const __m512i result = _mm512_or_si512(_mm512_mask_blend_epi16(is_upper, lower, upper), signs);
    auto* const result_to = reinterpret_cast<__m512i*>(to + at * sizeof(std::uint16_t));
    if constexpr (kPassesCaches) {
      _mm512_stream_si512(result_to, result);
    } else {
      _mm512_storeu_si512(result_to, result);
    }
  }
}

/// RunKernels::look_up_tiles
TP_LANES void look_up_tiles(const ElementRun& run, const MagnitudeTable* tables,
                            std::uint64_t tile_columns) {
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(run.to) % (kLookUpStep * sizeof(std::uint16_t)) == 0;
  const bool passes_caches = run.passes_caches && is_aligned;
  for (std::uint64_t at = 0; at < run.count; at += tile_columns) {
    const std::uint64_t count = std::min(tile_columns, run.count - at);
    std::byte* const to = run.to + at * sizeof(std::uint16_t);
    if (passes_caches) {
      look_up<true>(run.from + at, to, count, *tables);
    } else {
      look_up<false>(run.from + at, to, count, *tables);
    }
    ++tables;
  }
}

/// RunKernels::scale, with a table where the run is long enough for one.
template <class Source>
TP_LANES void scale_or_look_up(const ElementRun& run, float scale) {
  std::uint64_t done = 0;
  if (run.count >= kLookUpElementsMin && !std::signbit(scale)) {
    MagnitudeTable table;
    make_magnitudes<Source>(scale, table);
    done = run.count / kLookUpStep * kLookUpStep;
    look_up_tiles(
        {.from = run.from, .to = run.to, .count = done, .passes_caches = run.passes_caches}, &table,
        done);
  }
  scale_to_bf16<Source>({.from = run.from + done,
                         .to = run.to + done * sizeof(std::uint16_t),
                         .count = run.count - done,
                         .passes_caches = run.passes_caches},
                        scale);
}

/// From here on no product of a scale and a code but zero is subnormal in BF16.
constexpr float kRoundedScaleMin = 0x1p-110F;

TP_LANES bool can_round(const float* scales, std::uint64_t count) {
  const __m512i first = _mm512_set1_epi32(std::bit_cast<int>(kRoundedScaleMin));
  const __m512i last = _mm512_set1_epi32(std::bit_cast<int>(kPlainScaleMax));
  for (std::uint64_t at = 0; at < count; at += Lanes::kCount) {
    const auto lanes =
        static_cast<__mmask16>(kAllLanes >> (Lanes::kCount - std::min(Lanes::kCount, count - at)));
    // Magnitudes are in the order of their bits.
    const __m512i magnitudes = _mm512_and_si512(_mm512_maskz_loadu_epi32(lanes, scales + at),
                                                _mm512_set1_epi32(0x7fff'ffff));
    if ((_mm512_mask_cmplt_epi32_mask(lanes, magnitudes, first) |
         _mm512_mask_cmpgt_epi32_mask(lanes, magnitudes, last)) != 0) {
      return false;
    }
  }
  return true;
}

/// scale_plain_tiles() with the instruction that rounds two vectors to one of BF16, which takes
/// what is subnormal for zero.
template <class Source, bool kPassesCaches>
TP_ROUNDING_LANES bool round_plain_tiles(const ElementRun& run, const float* scales,
                                         std::uint64_t tile_columns) {
  Lanes::CodePairs largest = Lanes::no_codes();
  std::uint64_t at = 0;
  for (std::size_t tile = 0; at < run.count; ++tile) {
    const Lanes::Floats factor = Lanes::splat(scales[tile] * Source::kHalfFactor);
    const std::uint64_t end = std::min(at + tile_columns, run.count);
    for (; at < end; at += 2 * Lanes::kCount) {
      const __m256i codes = Lanes::load_halves(run.from + at);
      largest = _mm256_max_epu8(largest, _mm256_and_si256(codes, _mm256_set1_epi8(0x7f)));
      const __m512i halves = Source::halves(_mm512_cvtepi8_epi16(codes));
      const Lanes::Floats first = Lanes::multiply(
          _mm512_maskz_cvtph_ps(kAllLanes, _mm512_maskz_extracti64x4_epi64(0xf, halves, 0)),
          factor);
      const Lanes::Floats second = Lanes::multiply(
          _mm512_maskz_cvtph_ps(kAllLanes, _mm512_maskz_extracti64x4_epi64(0xf, halves, 1)),
          factor);
      const auto result = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
      auto* const to = reinterpret_cast<__m512i*>(run.to + at * Lanes::Bf16Target::kBytes);
      if constexpr (kPassesCaches) {
        _mm512_stream_si512(to, result);
      } else {
        _mm512_storeu_si512(to, result);
      }
    }
  }
  return !Lanes::has_special(largest, Source::kFirstSpecial);
}

/// RunKernels::scale_tiles, rounding as above where that is exact.
template <class Source>
bool round_tiles_to_bf16(const ElementRun& run, const float* scales, std::uint64_t tile_columns) {
  constexpr std::uint64_t kStep = 2 * Lanes::kCount;
  const std::uint64_t tile_count = (run.count + tile_columns - 1) / tile_columns;
  if (run.count % kStep != 0 || tile_columns % kStep != 0 || !can_round(scales, tile_count)) {
    return scale_tiles_to_bf16<Source>(run, scales, tile_columns);
  }
  const bool is_aligned =
      reinterpret_cast<std::uintptr_t>(run.to) % (kStep * sizeof(std::uint16_t)) == 0;
  return run.passes_caches && is_aligned
             ? round_plain_tiles<Source, true>(run, scales, tile_columns)
             : round_plain_tiles<Source, false>(run, scales, tile_columns);
}

template <class Source>
void add_tables(RunKernels& kernels) {
  kernels.scale = scale_or_look_up<Source>;
  kernels.make_table = make_magnitudes<Source>;
  kernels.look_up_tiles = look_up_tiles;
}

}  // namespace

}  // namespace avx512

std::optional<RunKernels> avx512_run_kernels(format::Dtype from, format::Dtype to) {
  std::optional<RunKernels> kernels = avx512::find_kernels(from, to);
  if (kernels && to == format::Dtype::kBf16) {
    if (from == format::Dtype::kF8E4M3) {
      avx512::add_tables<avx512::Lanes::E4M3Source>(*kernels);
    } else if (from == format::Dtype::kF8E5M2) {
      avx512::add_tables<avx512::Lanes::E5M2Source>(*kernels);
    }
  }
  return kernels;
}

std::optional<RunKernels> avx512_bf16_run_kernels(format::Dtype from, format::Dtype to) {
  std::optional<RunKernels> kernels = avx512_run_kernels(from, to);
  if (kernels && to == format::Dtype::kBf16) {
    if (from == format::Dtype::kF8E4M3) {
      kernels->scale_tiles = avx512::round_tiles_to_bf16<avx512::Lanes::E4M3Source>;
    } else if (from == format::Dtype::kF8E5M2) {
      kernels->scale_tiles = avx512::round_tiles_to_bf16<avx512::Lanes::E5M2Source>;
    }
  }
  return kernels;
}

}  // namespace trash_panda::runtime

#undef TP_LANES
#undef TP_ROUNDING_LANES
#undef TP_LANES_INLINE
#undef TP_LANES_STRUCT

#endif
