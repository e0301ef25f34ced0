#include "trash_panda/runtime/expand.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "cuda/expand_kernel.h"
#include "cuda/number_formats.h"
#include "scale_grid.h"

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

constexpr Fp8Table kTableE4M3 = make_table(cuda::kE4M3);
constexpr Fp8Table kTableE5M2 = make_table(cuda::kE5M2);
constexpr Fp8Table kTableE4M3Fnuz = make_table(cuda::kE4M3Fnuz);
constexpr Fp8Table kTableE5M2Fnuz = make_table(cuda::kE5M2Fnuz);

/// Stored forms: the width of an element, and its value in F32.
struct Fp8Source {
  using Stored = std::uint8_t;
  const Fp8Table* table;
  [[nodiscard]] float decode(Stored code) const { return (*table)[code]; }
};
struct Bf16Source {
  using Stored = std::uint16_t;
  [[nodiscard]] static float decode(Stored bits) { return cuda::decode_bf16(bits); }
};
struct F16Source {
  using Stored = std::uint16_t;
  [[nodiscard]] static float decode(Stored bits) { return cuda::decode_f16(bits); }
};
struct F32Source {
  using Stored = float;
  [[nodiscard]] static float decode(Stored value) { return value; }
};
struct F64Source {
  using Stored = double;
  [[nodiscard]] static float decode(Stored value) { return static_cast<float>(value); }
};

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
class Expander {
 public:
  Expander(Source form, const ExpandSource& source, std::span<std::byte> target)
      : form_(form),
        payload_(source.payload),
        scale_{.floats = source.scale.empty() ? nullptr : source.scale.data(),
               .codes = source.scale_codes.empty() ? nullptr : source.scale_codes.data()},
        target_(target) {}

  void run(const ScaleGrid& grid) const {
    if (scale_.empty()) {
      cast(target_.size() / sizeof(To));
    } else if (grid.tile_columns == grid.columns) {
      run_whole_rows(grid);
    } else if (grid.tile_columns == 1) {
      run_columns(grid);
    } else {
      run_tiles(grid);
    }
  }

 private:
  using From = typename Source::Stored;
  using To = typename Target::Stored;

  void cast(std::uint64_t count) const {
    for (std::uint64_t at = 0; at < count; ++at) {
      store<To>(target_.data(), at, Target::encode(form_.decode(load<From>(payload_.data(), at))));
    }
  }

  /// Elements [first, first + count), all of one scale.
  void scale_run(std::uint64_t first, std::uint64_t count, float scale) const {
    const std::byte* from = payload_.data() + first * sizeof(From);
    std::byte* to = target_.data() + first * sizeof(To);
    if constexpr (sizeof(From) == 1) {
      if (count >= kProductTableElementsMin) {
        std::array<To, 256> products;
        for (std::size_t code = 0; code < products.size(); ++code) {
          products[code] = Target::encode(form_.decode(static_cast<From>(code)) * scale);
        }
        for (std::uint64_t at = 0; at < count; ++at) {
          store<To>(to, at, products[load<From>(from, at)]);
        }
        return;
      }
    }
    for (std::uint64_t at = 0; at < count; ++at) {
      store<To>(to, at, Target::encode(form_.decode(load<From>(from, at)) * scale));
    }
  }

  /// Tiles as wide as the matrix lie in one piece.
  void run_whole_rows(const ScaleGrid& grid) const {
    std::uint64_t first = 0;
    std::size_t scale_at = 0;
    for (std::uint64_t matrix = 0; matrix < grid.matrix_count; ++matrix) {
      for (std::uint64_t row = 0; row < grid.rows; row += grid.tile_rows) {
        const std::uint64_t count = std::min(grid.tile_rows, grid.rows - row) * grid.columns;
        scale_run(first, count, scale_[scale_at]);
        first += count;
        ++scale_at;
      }
    }
  }

  void run_columns(const ScaleGrid& grid) const {
    for (std::uint64_t row = 0; row < grid.matrix_count * grid.rows; ++row) {
      const std::uint64_t first = row * grid.columns;
      const std::uint64_t scale_at = cuda::scale_index(grid, first);
      for (std::uint64_t at = 0; at < grid.columns; ++at) {
        const float scale = scale_[scale_at + at];
        const float value = form_.decode(load<From>(payload_.data(), first + at)) * scale;
        store<To>(target_.data(), first + at, Target::encode(value));
      }
    }
  }

  /// Row by row, so that both sides are walked through once, front to back.
  void run_tiles(const ScaleGrid& grid) const {
    for (std::uint64_t row = 0; row < grid.matrix_count * grid.rows; ++row) {
      const std::uint64_t first = row * grid.columns;
      std::uint64_t scale_at = cuda::scale_index(grid, first);
      for (std::uint64_t column = 0; column < grid.columns; column += grid.tile_columns) {
        const std::uint64_t count = std::min(grid.tile_columns, grid.columns - column);
        scale_run(first + column, count, scale_[scale_at]);
        ++scale_at;
      }
    }
  }

  Source form_;
  std::span<const std::byte> payload_;
  cuda::ScaleValues scale_;
  std::span<std::byte> target_;
};

template <class Source>
void expand_from(Source form, const ExpandSource& source, const ScaleGrid& grid, Dtype to,
                 std::span<std::byte> target) {
  switch (to) {
    case Dtype::kBf16:
      return Expander<Source, Bf16Target>(form, source, target).run(grid);
    case Dtype::kF16:
      return Expander<Source, F16Target>(form, source, target).run(grid);
    default:
      return Expander<Source, F32Target>(form, source, target).run(grid);
  }
}

const Fp8Table& table_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF8E4M3:
      return kTableE4M3;
    case Dtype::kF8E5M2:
      return kTableE5M2;
    case Dtype::kF8E4M3Fnuz:
      return kTableE4M3Fnuz;
    default:
      return kTableE5M2Fnuz;
  }
}

std::optional<ScaleGrid> grid_of(const ExpandSource& source) {
  return make_scale_grid(*source.shape, {.count = source.scale.size() + source.scale_codes.size(),
                                         .granularity = source.granularity,
                                         .block_rows = source.block_rows,
                                         .block_columns = source.block_columns});
}

}  // namespace

bool can_expand(Dtype from, Dtype to) {
  const bool from_is_float = format::is_fp8(from) || format::is_plain_float(from);
  return from_is_float && (to == Dtype::kBf16 || to == Dtype::kF16 || to == Dtype::kF32);
}

void expand(const ExpandSource& source, Dtype to, std::span<std::byte> target) {
  TP_ASSERT(can_expand(source.dtype, to));
  TP_ASSERT(source.scale.empty() || source.scale_codes.empty());
  const std::optional<std::uint64_t> elements = element_count(*source.shape);
  const std::optional<ScaleGrid> grid = grid_of(source);
  TP_ASSERT(elements && grid);
  TP_ASSERT(source.payload.size() == *elements * format::dtype_bits(source.dtype) / 8);
  TP_ASSERT(target.size() == *elements * format::dtype_bits(to) / 8);
  if (*elements == 0) {
    return;
  }
  switch (source.dtype) {
    case Dtype::kBf16:
      return expand_from(Bf16Source(), source, *grid, to, target);
    case Dtype::kF16:
      return expand_from(F16Source(), source, *grid, to, target);
    case Dtype::kF32:
      return expand_from(F32Source(), source, *grid, to, target);
    case Dtype::kF64:
      return expand_from(F64Source(), source, *grid, to, target);
    default:
      return expand_from(Fp8Source{&table_of(source.dtype)}, source, *grid, to, target);
  }
}

}  // namespace trash_panda::runtime
