#include "scale_granularity.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "scale_fit.h"

namespace trash_panda::format {

namespace {

constexpr TileShape kDefaultTile{128, 128};
/// A grid that is larger than the weight needs was padded; the files that do so pad to small
/// alignments. A grid beyond that more likely has tiles of another size.
constexpr std::uint64_t kGridPadding = 8;
/// Smallest group that any published format has, for grids that no configuration explains.
constexpr std::uint64_t kGroupMin = 16;

std::uint64_t ceil_divide(std::uint64_t value, std::uint64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

/// ModelOpt stores the grid [rows, columns] as [rows, 1, columns, 1].
Shape squeeze_interleaved(const Shape& weight, const Shape& scale) {
  const std::size_t rank = weight.size();
  if (rank < 2 || scale.size() != rank + 2 || scale[rank - 1] != 1 || scale[rank + 1] != 1) {
    return scale;
  }
  Shape grid(scale.begin(), scale.begin() + static_cast<std::ptrdiff_t>(rank - 1));
  grid.push_back(scale[rank]);
  return grid;
}

/// Whether all dimensions but the last two are the same.
bool same_leading(const Shape& weight, const Shape& scale) {
  return weight.size() >= 2 && weight.size() == scale.size() &&
         std::equal(weight.begin(), weight.end() - 2, scale.begin());
}

/// [N], [N, 1], [E, 1, 1], [E, N, 1], [O, 1, 1, 1]: the weight's first dimensions, then ones.
std::optional<ScaleFit> fit_rows(const Shape& weight, const Shape& scale) {
  std::size_t prefix = scale.size();
  while (prefix > 0 && scale[prefix - 1] == 1) {
    --prefix;
  }
  const bool is_elementwise = prefix == weight.size() && weight.size() > 1;
  if (scale.size() > weight.size() || is_elementwise ||
      !std::equal(scale.begin(), scale.begin() + static_cast<std::ptrdiff_t>(prefix),
                  weight.begin())) {
    return std::nullopt;
  }
  ScaleFit fit{.granularity = Granularity::kRow, .shape = scale, .block_shape = {}};
  fit.shape.resize(weight.size(), 1);
  return fit;
}

std::optional<ScaleFit> fit_columns(const Shape& weight, const Shape& scale) {
  if (!same_leading(weight, scale) || scale[scale.size() - 2] != 1 ||
      scale.back() != weight.back()) {
    return std::nullopt;
  }
  return ScaleFit{.granularity = Granularity::kColumn, .shape = scale, .block_shape = {}};
}

/// [experts, out, 1] for a weight [experts, in, out] becomes [experts, 1, out]: the same bytes.
std::optional<ScaleFit> fit_stack_last_axis(const Shape& weight, const Shape& scale) {
  if (scale[0] != weight[0] || scale[1] != weight[2]) {
    return std::nullopt;
  }
  return ScaleFit{
      .granularity = Granularity::kColumn, .shape = {scale[0], 1, scale[1]}, .block_shape = {}};
}

enum class GridMatch { kExact, kPadded };

std::optional<ScaleFit> fit_grid(const Shape& weight, const Shape& scale, TileShape tile,
                                 GridMatch match) {
  const std::uint64_t rows = ceil_divide(weight[weight.size() - 2], tile.rows);
  const std::uint64_t columns = ceil_divide(weight.back(), tile.columns);
  const std::uint64_t stored_rows = scale[scale.size() - 2];
  const std::uint64_t stored_columns = scale.back();
  const bool is_exact = stored_rows == rows && stored_columns == columns;
  const auto is_padded = [](std::uint64_t stored, std::uint64_t needed) {
    return stored >= needed && stored <= ceil_divide(needed, kGridPadding) * kGridPadding;
  };
  if (match == GridMatch::kExact
          ? !is_exact
          : !is_padded(stored_rows, rows) || !is_padded(stored_columns, columns)) {
    return std::nullopt;
  }
  ScaleFit fit{.granularity = Granularity::kBlock,
               .shape = scale,
               .block_shape = {tile.rows, tile.columns},
               .is_cropped = !is_exact};
  fit.shape[scale.size() - 2] = rows;
  fit.shape.back() = columns;
  return fit;
}

std::optional<ScaleFit> fit_unnamed_grid(const Shape& weight, const Shape& scale) {
  if (auto fit = fit_grid(weight, scale, kDefaultTile, GridMatch::kExact)) {
    return fit;
  }
  const std::uint64_t groups = scale.back();
  if (scale[scale.size() - 2] != weight[weight.size() - 2] || groups == 0 ||
      weight.back() % groups != 0) {
    return std::nullopt;
  }
  const std::uint64_t group = weight.back() / groups;
  if (group < kGroupMin || !std::has_single_bit(group)) {
    return std::nullopt;
  }
  return fit_grid(weight, scale, {1, group}, GridMatch::kExact);
}

std::optional<ScaleFit> fit_tiles(const Shape& weight, const Shape& scale,
                                  const ScaleHints& hints) {
  for (const TileShape& tile : hints.tiles) {
    if (auto fit = fit_grid(weight, scale, tile, GridMatch::kExact)) {
      return fit;
    }
  }
  if (!hints.tiles_only) {
    if (auto fit = fit_unnamed_grid(weight, scale)) {
      return fit;
    }
  }
  if (scale == weight) {
    return fit_grid(weight, scale, {1, 1}, GridMatch::kExact);
  }
  for (const TileShape& tile : hints.tiles) {
    if (auto fit = fit_grid(weight, scale, tile, GridMatch::kPadded)) {
      return fit;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<ScaleFit> fit_scale(const Shape& weight, const Shape& stored_scale,
                                  const ScaleHints& hints) {
  const Shape scale = squeeze_interleaved(weight, stored_scale);
  const bool is_single = std::ranges::all_of(scale, [](std::uint64_t size) { return size == 1; });
  // Where tiles are the rule, [1, 1] is the grid of a weight of one tile or an error.
  if (is_single && hints.tiles_only && scale.size() >= 2 && same_leading(weight, scale)) {
    return fit_tiles(weight, scale, hints);
  }
  if (is_single) {
    return ScaleFit{.granularity = Granularity::kTensor, .shape = {}, .block_shape = {}};
  }
  if (hints.stack_scales_are_last_axis && weight.size() == 3 && scale.size() == 3 &&
      scale[2] == 1 && scale[1] != 1) {
    return fit_stack_last_axis(weight, scale);
  }
  if (auto fit = fit_rows(weight, scale)) {
    return fit;
  }
  if (auto fit = fit_columns(weight, scale)) {
    return fit;
  }
  return same_leading(weight, scale) ? fit_tiles(weight, scale, hints) : std::nullopt;
}

std::optional<ScaleFit> fit_mx_groups(const Shape& weight, const Shape& stored_scale,
                                      const ScaleHints& hints) {
  const bool is_named = std::ranges::any_of(hints.tiles, [](const TileShape& tile) {
    return tile.rows == 1 && tile.columns == kMxGroupSize;
  });
  if (!same_leading(weight, stored_scale) || (!is_named && !hints.tiles.empty())) {
    return std::nullopt;
  }
  return fit_grid(weight, stored_scale, {1, kMxGroupSize}, GridMatch::kExact);
}

}  // namespace trash_panda::format
