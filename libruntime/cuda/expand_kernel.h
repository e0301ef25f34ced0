#pragma once

// The arithmetic of one expanded element, and which scale it takes. One source for the host and
// the GPU, see number_formats.h.

#include <cstdint>

#include "cuda/number_formats.h"

namespace trash_panda::runtime::cuda {

/// Every granularity of scales as one picture: `matrix_count` row-major matrices one after the
/// other, each cut into tiles that have one scale, row-major too. A scale per tensor is a tile as
/// large as the matrix, one per row a tile of one row, one per column a tile of one column.
struct ScaleGrid {
  std::uint64_t matrix_count;
  std::uint64_t rows;
  std::uint64_t columns;
  std::uint64_t tile_rows;
  std::uint64_t tile_columns;

  [[nodiscard]] TP_HOST_DEVICE std::uint64_t grid_rows() const {
    return (rows + tile_rows - 1) / tile_rows;
  }
  [[nodiscard]] TP_HOST_DEVICE std::uint64_t grid_columns() const {
    return (columns + tile_columns - 1) / tile_columns;
  }
};

/// Index of the scale of one element, counted through all matrices.
TP_HOST_DEVICE std::uint64_t scale_index(const ScaleGrid& grid, std::uint64_t element) {
  const std::uint64_t column = element % grid.columns;
  const std::uint64_t row_in_all = element / grid.columns;
  const std::uint64_t row = row_in_all % grid.rows;
  const std::uint64_t matrix = row_in_all / grid.rows;
  const std::uint64_t grid_row = matrix * grid.grid_rows() + row / grid.tile_rows;
  return grid_row * grid.grid_columns() + column / grid.tile_columns;
}

/// The scales of a weight as they are stored: F32, or F8_E8M0 codes that are decoded on the way.
struct ScaleValues {
  const float* floats;        ///< Null: there are codes, or no scales.
  const std::uint8_t* codes;  ///< Null: there are floats, or no scales.

  [[nodiscard]] TP_HOST_DEVICE bool empty() const { return floats == nullptr && codes == nullptr; }
  [[nodiscard]] TP_HOST_DEVICE float operator[](std::uint64_t index) const {
    return codes != nullptr ? decode_e8m0(codes[index]) : floats[index];
  }
};

/// Result types of an expansion: how they are stored and rounded.
struct Bf16Target {
  using Stored = std::uint16_t;
  static TP_HOST_DEVICE Stored encode(float value) { return encode_bf16(value); }
};
struct F16Target {
  using Stored = std::uint16_t;
  static TP_HOST_DEVICE Stored encode(float value) { return encode_f16(value); }
};
struct F32Target {
  using Stored = float;
  static TP_HOST_DEVICE Stored encode(float value) { return value; }
};

/// Stored forms: the width of an element, and its value in F32.
template <Fp8Format kFormat>
struct Fp8Source {
  using Stored = std::uint8_t;
  static TP_HOST_DEVICE float decode(Stored code) { return decode_fp8(kFormat, code); }
};
struct Bf16Source {
  using Stored = std::uint16_t;
  static TP_HOST_DEVICE float decode(Stored bits) { return decode_bf16(bits); }
};
struct F16Source {
  using Stored = std::uint16_t;
  static TP_HOST_DEVICE float decode(Stored bits) { return decode_f16(bits); }
};
struct F32Source {
  using Stored = float;
  static TP_HOST_DEVICE float decode(Stored value) { return value; }
};
struct F64Source {
  using Stored = double;
  static TP_HOST_DEVICE float decode(Stored value) { return static_cast<float>(value); }
};

/// What a launch of an expansion works on. Plain data, passed by value.
struct ExpandArguments {
  const void* payload;  ///< On a multiple of 16 bytes, as is `target`.
  ScaleValues scale;
  void* target;
  std::uint64_t element_count;
  ScaleGrid grid;
};

/// Elements that a thread takes at once: 16 bytes of a 16-bit result, the widest store there is.
inline constexpr std::uint64_t kRunElements = 8;

/// Elements that are loaded and stored together.
template <class T>
struct alignas(sizeof(T) * kRunElements < 16 ? sizeof(T) * kRunElements : 16) ElementRun {
  T values[kRunElements];  // NOLINT(modernize-avoid-c-arrays): nvcc keeps these in registers.
};

/// Whether the elements of every run have one scale: rows and tiles are whole runs wide, or all
/// elements have the same.
TP_HOST_DEVICE bool has_scale_per_run(const ExpandArguments& arguments) {
  const ScaleGrid& grid = arguments.grid;
  return arguments.scale.empty() ||
         (grid.columns % kRunElements == 0 && grid.tile_columns % kRunElements == 0) ||
         (grid.matrix_count == 1 && grid.tile_rows == grid.rows &&
          grid.tile_columns == grid.columns);
}

/// The scale of an element, if there are scales.
struct FoundScale {
  bool is_there;
  float value;
};

TP_HOST_DEVICE FoundScale scale_of_element(const ExpandArguments& arguments,
                                           std::uint64_t element) {
  return arguments.scale.empty()
             ? FoundScale{false, 0}
             : FoundScale{true, arguments.scale[scale_index(arguments.grid, element)]};
}

template <class Source, class Target>
TP_HOST_DEVICE typename Target::Stored expand_element(typename Source::Stored stored,
                                                      FoundScale scale) {
  const float value = Source::decode(stored);
  return Target::encode(scale.is_there ? value * scale.value : value);
}

/// Expands the runs first, first + stride … of kRunElements elements: the body of a kernel, and of
/// what stands for it on the host.
template <class Source, class Target>
TP_HOST_DEVICE void expand_elements(const ExpandArguments& arguments, std::uint64_t first,
                                    std::uint64_t stride) {
  using From = typename Source::Stored;
  using To = typename Target::Stored;
  const auto* payload = static_cast<const From*>(arguments.payload);
  auto* target = static_cast<To*>(arguments.target);
  const bool scale_per_run = has_scale_per_run(arguments);
  TP_NO_UNROLL
  for (std::uint64_t run = first; run * kRunElements < arguments.element_count; run += stride) {
    const std::uint64_t begin = run * kRunElements;
    if (scale_per_run && arguments.element_count - begin >= kRunElements) {
      const FoundScale scale = scale_of_element(arguments, begin);
      const auto from = static_cast<const ElementRun<From>*>(arguments.payload)[run];
      ElementRun<To> to = {};
      for (std::uint64_t at = 0; at < kRunElements; ++at) {
        to.values[at] = expand_element<Source, Target>(from.values[at], scale);
      }
      static_cast<ElementRun<To>*>(arguments.target)[run] = to;
      continue;
    }
    TP_NO_UNROLL
    for (std::uint64_t at = begin; at < arguments.element_count && at < begin + kRunElements;
         ++at) {
      target[at] = expand_element<Source, Target>(payload[at], scale_of_element(arguments, at));
    }
  }
}

// Every expansion: X(name of the kernel, Source, Target).
#define TP_EXPAND_KERNELS_TO(X, name, Target)                \
  X(tp_expand_e4m3_##name, Fp8Source<kE4M3>, Target)         \
  X(tp_expand_e5m2_##name, Fp8Source<kE5M2>, Target)         \
  X(tp_expand_e4m3fnuz_##name, Fp8Source<kE4M3Fnuz>, Target) \
  X(tp_expand_e5m2fnuz_##name, Fp8Source<kE5M2Fnuz>, Target) \
  X(tp_expand_bf16_##name, Bf16Source, Target)               \
  X(tp_expand_f16_##name, F16Source, Target)                 \
  X(tp_expand_f32_##name, F32Source, Target)                 \
  X(tp_expand_f64_##name, F64Source, Target)
#define TP_EXPAND_KERNELS(X)                \
  TP_EXPAND_KERNELS_TO(X, bf16, Bf16Target) \
  TP_EXPAND_KERNELS_TO(X, f16, F16Target)   \
  TP_EXPAND_KERNELS_TO(X, f32, F32Target)

}  // namespace trash_panda::runtime::cuda
