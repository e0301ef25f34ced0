// expand() with what every CPU has, one element at a time, for every pair of dtypes.

#include <array>
#include <cstring>

#include "cuda/expand_kernel.h"
#include "cuda/number_formats.h"
#include "expand/run_kernels.h"

namespace trash_panda::runtime {

namespace {

using cuda::Bf16Target;
using cuda::F16Target;
using cuda::F32Target;
using format::Dtype;

using Fp8Table = std::array<float, 256>;

constexpr Fp8Table make_table(cuda::Fp8Format format) {
  Fp8Table table = {};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = cuda::decode_fp8(format, static_cast<std::uint8_t>(code));
  }
  return table;
}

template <cuda::Fp8Format kFormat>
constexpr Fp8Table kFp8Table = make_table(kFormat);

/// Stored forms: the width of an element, and its value in F32.
template <cuda::Fp8Format kFormat>
struct Fp8Source {
  using Stored = std::uint8_t;
  static float decode(Stored code) { return kFp8Table<kFormat>[code]; }
};
using cuda::Bf16Source;
using cuda::F16Source;
using cuda::F32Source;
using cuda::F64Source;

/// From this many elements of one scale on, all 256 products are rounded once and looked up:
/// an eighth of the run is then the most that the table can cost.
constexpr std::uint64_t kProductTableElementsMin = 8 * 256;

/// Elements by memcpy: neither side need be aligned, and compilers make plain loads of it.
template <class T>
T load(const std::byte* from, std::uint64_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store(std::byte* to, std::uint64_t index, T value) {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

template <class Source, class Target>
struct PortableRun {
  using From = typename Source::Stored;
  using To = typename Target::Stored;

  static void cast(const ElementRun& run) {
    for (std::uint64_t at = 0; at < run.count; ++at) {
      store<To>(run.to, at, Target::encode(Source::decode(load<From>(run.from, at))));
    }
  }

  static void scale(const ElementRun& run, float scale) {
    if constexpr (sizeof(From) == 1) {
      if (run.count >= kProductTableElementsMin) {
        return look_up(run, scale);
      }
    }
    for (std::uint64_t at = 0; at < run.count; ++at) {
      store<To>(run.to, at, Target::encode(Source::decode(load<From>(run.from, at)) * scale));
    }
  }

  static void scale_each(const ElementRun& run, const float* scales) {
    for (std::uint64_t at = 0; at < run.count; ++at) {
      const float value = Source::decode(load<From>(run.from, at)) * scales[at];
      store<To>(run.to, at, Target::encode(value));
    }
  }

 private:
  static void look_up(const ElementRun& run, float scale) {
    std::array<To, 256> products;
    for (std::size_t code = 0; code < products.size(); ++code) {
      products[code] = Target::encode(Source::decode(static_cast<From>(code)) * scale);
    }
    for (std::uint64_t at = 0; at < run.count; ++at) {
      store<To>(run.to, at, products[load<std::uint8_t>(run.from, at)]);
    }
  }
};

template <class Source, class Target>
RunKernels portable_kernels() {
  using Run = PortableRun<Source, Target>;
  return {.cast = Run::cast, .scale = Run::scale, .scale_each = Run::scale_each};
}

template <class Source>
RunKernels portable_kernels_from(Dtype to) {
  switch (to) {
    case Dtype::kBf16:
      return portable_kernels<Source, Bf16Target>();
    case Dtype::kF16:
      return portable_kernels<Source, F16Target>();
    default:
      return portable_kernels<Source, F32Target>();
  }
}

}  // namespace

RunKernels portable_run_kernels(Dtype from, Dtype to) {
  TP_ASSERT(can_expand(from, to));
  switch (from) {
    case Dtype::kBf16:
      return portable_kernels_from<Bf16Source>(to);
    case Dtype::kF16:
      return portable_kernels_from<F16Source>(to);
    case Dtype::kF32:
      return portable_kernels_from<F32Source>(to);
    case Dtype::kF64:
      return portable_kernels_from<F64Source>(to);
    case Dtype::kF8E4M3:
      return portable_kernels_from<Fp8Source<cuda::kE4M3>>(to);
    case Dtype::kF8E5M2:
      return portable_kernels_from<Fp8Source<cuda::kE5M2>>(to);
    case Dtype::kF8E4M3Fnuz:
      return portable_kernels_from<Fp8Source<cuda::kE4M3Fnuz>>(to);
    default:
      return portable_kernels_from<Fp8Source<cuda::kE5M2Fnuz>>(to);
  }
}

}  // namespace trash_panda::runtime
