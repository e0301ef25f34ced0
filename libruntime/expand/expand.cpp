#include "trash_panda/runtime/expand.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "expand/run_kernels.h"
#include "expand/scale_grid.h"

namespace trash_panda::runtime {

namespace {

using format::Dtype;

/// From this size on a result goes past the caches: they would have little of it left when the
/// weight is used, and lines that are overwritten as a whole need not be read first.
constexpr std::uint64_t kPassCachesBytesMin = 128 * 1024;

/// From so many rows with the same scales on it pays to work out what every code becomes.
constexpr std::uint64_t kTableRowsMin = 16;

/// Walks over a weight and its scales in the order of memory.
class Expander {
 public:
  Expander(const ExpandSource& source, Dtype to, const RunKernels& kernels,
           std::span<std::byte> target)
      : kernels_(kernels),
        from_(source.payload.data()),
        from_bytes_(format::dtype_bits(source.dtype) / 8),
        scale_{.floats = source.scale.empty() ? nullptr : source.scale.data(),
               .codes = source.scale_codes.empty() ? nullptr : source.scale_codes.data()},
        target_(target),
        to_bytes_(format::dtype_bits(to) / 8),
        passes_caches_(target.size() >= kPassCachesBytesMin) {}

  void run(const ScaleGrid& grid) const {
    if (scale_.empty()) {
      kernels_.cast(elements(0, target_.size() / to_bytes_));
    } else if (grid.tile_columns == grid.columns) {
      run_whole_rows(grid);
    } else if (grid.tile_columns == 1) {
      run_columns(grid);
    } else {
      run_tiles(grid);
    }
#ifdef __x86_64__
    if (passes_caches_) {
      _mm_sfence();  // Whoever is told that the result is there must see it.
    }
#endif
  }

 private:
  [[nodiscard]] ElementRun elements(std::uint64_t first, std::uint64_t count) const {
    return {.from = from_ + first * from_bytes_,
            .to = target_.data() + first * to_bytes_,
            .count = count,
            .passes_caches = passes_caches_};
  }

  /// Tiles as wide as the matrix lie in one piece.
  void run_whole_rows(const ScaleGrid& grid) const {
    std::uint64_t first = 0;
    std::size_t scale_at = 0;
    for (std::uint64_t matrix = 0; matrix < grid.matrix_count; ++matrix) {
      for (std::uint64_t row = 0; row < grid.rows; row += grid.tile_rows) {
        const std::uint64_t count = std::min(grid.tile_rows, grid.rows - row) * grid.columns;
        kernels_.scale(elements(first, count), scale_[scale_at]);
        first += count;
        ++scale_at;
      }
    }
  }

  /// Row by row, so that both sides are walked through once, front to back.
  ///
  /// @param take_scales  Is given the scales of a row of tiles before their first row.
  /// @param run_row      Is given the first element of each row.
  template <class TakeScales, class RunRow>
  void for_each_row(const ScaleGrid& grid, TakeScales&& take_scales, RunRow&& run_row) const {
    std::vector<float> scales(grid.grid_columns());
    for (std::uint64_t row = 0; row < grid.matrix_count * grid.rows; ++row) {
      const std::uint64_t first = row * grid.columns;
      if (row % grid.rows % grid.tile_rows == 0) {
        const std::uint64_t scale_at = cuda::scale_index(grid, first);
        if (scale_.floats != nullptr) {
          std::copy_n(scale_.floats + scale_at, scales.size(), scales.begin());
        } else {
          std::ranges::transform(std::span(scale_.codes + scale_at, scales.size()), scales.begin(),
                                 cuda::decode_e8m0);
        }
        take_scales(std::as_const(scales));
      }
      run_row(first, std::as_const(scales));
    }
  }

  void run_columns(const ScaleGrid& grid) const {
    for_each_row(
        grid, [](const std::vector<float>&) {},
        [&](std::uint64_t first, const std::vector<float>& scales) {
          kernels_.scale_each(elements(first, grid.columns), scales.data());
        });
  }

  void run_tiles(const ScaleGrid& grid) const {
    const bool may_look_up = kernels_.make_table != nullptr && grid.tile_rows >= kTableRowsMin &&
                             grid.columns % kLookUpStep == 0 &&
                             grid.tile_columns % kLookUpStep == 0;
    std::vector<MagnitudeTable> tables(may_look_up ? grid.grid_columns() : 0);
    bool looks_up = false;
    const auto take_scales = [&](const std::vector<float>& scales) {
      looks_up = may_look_up &&
                 std::ranges::none_of(scales, [](float scale) { return std::signbit(scale); });
      for (std::size_t tile = 0; looks_up && tile < tables.size(); ++tile) {
        kernels_.make_table(scales[tile], tables[tile]);
      }
    };
    for_each_row(grid, take_scales, [&](std::uint64_t first, const std::vector<float>& scales) {
      const ElementRun row = elements(first, grid.columns);
      if (looks_up) {
        kernels_.look_up_tiles(row, tables.data(), grid.tile_columns);
      } else if (kernels_.scale_tiles == nullptr ||
                 !kernels_.scale_tiles(row, scales.data(), grid.tile_columns)) {
        scale_tiles_singly(grid, first, scales);
      }
    });
  }

  void scale_tiles_singly(const ScaleGrid& grid, std::uint64_t first,
                          const std::vector<float>& scales) const {
    for (std::size_t tile = 0; tile < scales.size(); ++tile) {
      const std::uint64_t column = tile * grid.tile_columns;
      const std::uint64_t count = std::min(grid.tile_columns, grid.columns - column);
      kernels_.scale(elements(first + column, count), scales[tile]);
    }
  }

  const RunKernels& kernels_;
  const std::byte* from_;
  std::uint64_t from_bytes_;  ///< Of an element.
  cuda::ScaleValues scale_;
  std::span<std::byte> target_;
  std::uint64_t to_bytes_;  ///< Of an element.
  bool passes_caches_;
};

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

void expand(const ExpandSource& source, Dtype to, std::span<std::byte> target,
            const ExpandImplementation& implementation) {
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
  const RunKernels kernels =
      implementation.kernels(source.dtype, to).value_or(portable_run_kernels(source.dtype, to));
  Expander(source, to, kernels, target).run(*grid);
}

}  // namespace trash_panda::runtime
