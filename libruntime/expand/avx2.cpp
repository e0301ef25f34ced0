// expand() with AVX2 and F16C, 8 elements at a time.

#ifdef __x86_64__

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <immintrin.h>

#include "expand/run_kernels.h"

// Attributes of functions, not flags of the file: inline functions of headers, which the linker
// takes from any one file, must run on every CPU.
#define TP_LANES __attribute__((target("avx2,f16c")))
#define TP_LANES_INLINE __attribute__((target("avx2,f16c"), always_inline)) inline

namespace trash_panda::runtime {

namespace avx2 {

namespace {

struct Avx2Lanes {
  using Floats = __m256;
  static constexpr std::uint64_t kCount = 8;

  TP_LANES_INLINE static Floats splat(float value) { return _mm256_set1_ps(value); }
  TP_LANES_INLINE static Floats load(const float* from) { return _mm256_loadu_ps(from); }
  TP_LANES_INLINE static Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }

  TP_LANES_INLINE static __m128i load_halves(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  /// 8-bit codes, each in 16 bits.
  TP_LANES_INLINE static __m128i load_codes(const std::byte* from) {
    return _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }

  struct E4M3Source {
    static constexpr std::uint64_t kBytes = 1;
    /// As F16 whose exponents are 8 less, which holds every value, subnormal ones too.
    TP_LANES_INLINE static Floats decode(const std::byte* from) {
      const __m128i codes = load_codes(from);
      const __m128i magnitudes = _mm_and_si128(codes, _mm_set1_epi16(0x7f));
      const __m128i is_nan = _mm_cmpeq_epi16(magnitudes, _mm_set1_epi16(0x7f));
      const __m128i signs = _mm_slli_epi16(_mm_and_si128(codes, _mm_set1_epi16(0x80)), 8);
      const __m128i numbers = _mm_or_si128(_mm_slli_epi16(magnitudes, 7), signs);
      // With the last bit of the exponent, too, it is the NaN of F16.
      const __m128i halves = _mm_or_si128(numbers, _mm_and_si128(is_nan, _mm_set1_epi16(0x4000)));
      return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(kHalfFactor));
    }
    static constexpr float kHalfFactor = 0x1p8F;
    /// Magnitudes from here on are NaN.
    static constexpr char kFirstSpecial = 0x7f;
    TP_LANES_INLINE static __m128i even_halves(__m128i codes) {
      return odd_halves(_mm_slli_epi16(codes, 8));
    }
    TP_LANES_INLINE static __m128i odd_halves(__m128i codes) {
      return _mm_and_si128(_mm_srai_epi16(codes, 1), _mm_set1_epi16(kHalfBits));
    }
    /// Sign, the lower bits of the exponent, and the upper ones of the mantissa.
    static constexpr auto kHalfBits = static_cast<short>(0xbf80);
  };

  struct E5M2Source {
    static constexpr std::uint64_t kBytes = 1;
    /// They are the upper halves of F16.
    TP_LANES_INLINE static Floats decode(const std::byte* from) {
      return _mm256_cvtph_ps(_mm_slli_epi16(load_codes(from), 8));
    }
    static constexpr float kHalfFactor = 1;
    /// Magnitudes from here on are infinity and NaN.
    static constexpr char kFirstSpecial = 0x7c;
    TP_LANES_INLINE static __m128i even_halves(__m128i codes) { return _mm_slli_epi16(codes, 8); }
    TP_LANES_INLINE static __m128i odd_halves(__m128i codes) {
      return _mm_and_si128(codes, _mm_set1_epi16(static_cast<short>(0xff00)));
    }
  };

  struct Bf16Source {
    static constexpr std::uint64_t kBytes = 2;
    TP_LANES_INLINE static Floats decode(const std::byte* from) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(from)), 16));
    }
  };

  struct F16Source {
    static constexpr std::uint64_t kBytes = 2;
    TP_LANES_INLINE static Floats decode(const std::byte* from) {
      return _mm256_cvtph_ps(load_halves(from));
    }
  };

  struct F32Source {
    static constexpr std::uint64_t kBytes = 4;
    TP_LANES_INLINE static Floats decode(const std::byte* from) {
      return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
    }
  };

  template <bool kPassesCaches>
  TP_LANES_INLINE static void store_halves(__m128i halves, std::byte* to) {
    if constexpr (kPassesCaches) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to), halves);
    } else {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
    }
  }

  /// BF16 in the upper halves, of values that are no NaN.
  TP_LANES_INLINE static __m256i round_to_bf16(Floats values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i last_bits = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), last_bits);
  }

  struct Bf16Target {
    static constexpr std::uint64_t kBytes = 2;
    /// As cuda::encode_bf16().
    template <bool kPassesCaches>
    TP_LANES_INLINE static void encode(Floats values, std::byte* to) {
      const __m256i sums = round_to_bf16(values);
      // All ones where the value is NaN, and so is their upper half.
      const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
      const __m256i rounded = _mm256_srli_epi32(_mm256_or_si256(sums, is_nan), 16);
      const __m256i packed = _mm256_packus_epi32(rounded, rounded);
      store_halves<kPassesCaches>(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0b1000)),
                                  to);
    }
  };

  struct F16Target {
    static constexpr std::uint64_t kBytes = 2;
    template <bool kPassesCaches>
    TP_LANES_INLINE static void encode(Floats values, std::byte* to) {
      store_halves<kPassesCaches>(
          _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), to);
    }
  };

  struct F32Target {
    static constexpr std::uint64_t kBytes = 4;
    template <bool kPassesCaches>
    TP_LANES_INLINE static void encode(Floats values, std::byte* to) {
      if constexpr (kPassesCaches) {
        _mm256_stream_ps(reinterpret_cast<float*>(to), values);
      } else {
        _mm256_storeu_ps(reinterpret_cast<float*>(to), values);
      }
    }
  };

  /// 8-bit codes two by two in 16 bits.
  using CodePairs = __m128i;

  /// Scales two vectors of 8-bit codes to BF16. The even ones make one vector of products and the
  /// odd ones another, whose halves then need no shuffle.
  ///
  /// @param largest  Takes up the magnitudes.
  template <class Source, bool kPassesCaches>
  TP_LANES_INLINE static void scale_pairs(const std::byte* from, std::byte* to, Floats factor,
                                          CodePairs& largest) {
    const __m128i codes = load_halves(from);
    largest = _mm_max_epu8(largest, _mm_and_si128(codes, _mm_set1_epi8(0x7f)));
    const Floats even = multiply(_mm256_cvtph_ps(Source::even_halves(codes)), factor);
    const Floats odd = multiply(_mm256_cvtph_ps(Source::odd_halves(codes)), factor);
    const __m256i result = _mm256_blend_epi16(_mm256_srli_epi32(round_to_bf16(even), 16),
                                              round_to_bf16(odd), 0b1010'1010);
    if constexpr (kPassesCaches) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to), result);
    } else {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), result);
    }
  }
  TP_LANES_INLINE static CodePairs no_codes() { return _mm_setzero_si128(); }
  TP_LANES_INLINE static bool has_special(CodePairs largest, char first_special) {
    const __m128i capped = _mm_max_epu8(largest, _mm_set1_epi8(first_special));
    return _mm_movemask_epi8(_mm_cmpeq_epi8(capped, largest)) != 0;
  }
};

#define TP_LANES_STRUCT Avx2Lanes
#include "expand/vector_runs.inl"

}  // namespace

}  // namespace avx2

std::optional<RunKernels> avx2_run_kernels(format::Dtype from, format::Dtype to) {
  return avx2::find_kernels(from, to);
}

}  // namespace trash_panda::runtime

#undef TP_LANES
#undef TP_LANES_INLINE
#undef TP_LANES_STRUCT

#endif
