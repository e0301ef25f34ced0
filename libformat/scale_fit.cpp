#include "scale_fit.h"

#include <algorithm>

namespace trash_panda::format {

namespace {

std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return value / by + (value % by != 0 ? 1 : 0);
}

/// The first dimensions are the weight's, at least one of them, and the others are 1.
bool fits_per_row(const Shape& weight, const Shape& scale) {
  if (scale.size() != weight.size() || weight.empty() || scale.front() != weight.front()) {
    return false;
  }
  const auto rest = std::ranges::mismatch(weight, scale).in2;
  return std::all_of(rest, scale.end(), [](std::uint64_t dimension) { return dimension == 1; });
}

}  // namespace

bool is_mx_block(Granularity granularity, const Shape& block_shape) {
  return granularity == Granularity::kBlock && block_shape == Shape{1, kMxGroupSize};
}

bool scale_dtype_fits(Dtype dtype, Granularity granularity, const Shape& block_shape) {
  return dtype == Dtype::kF32 || (dtype == Dtype::kF8E8M0 && is_mx_block(granularity, block_shape));
}

bool scale_shape_fits(const Shape& weight, const Shape& scale, Granularity granularity,
                      const Shape& block_shape) {
  if (granularity != Granularity::kBlock && !block_shape.empty()) {
    return false;
  }
  if (granularity == Granularity::kTensor) {
    return scale.empty();
  }
  if (granularity == Granularity::kRow) {
    return fits_per_row(weight, scale);
  }
  if (weight.size() < 2 || scale.size() != weight.size() ||
      !std::equal(weight.begin(), weight.end() - 2, scale.begin())) {
    return false;
  }
  const std::uint64_t rows = scale[scale.size() - 2];
  const std::uint64_t columns = scale.back();
  if (granularity == Granularity::kColumn) {
    return rows == 1 && columns == weight.back();
  }
  return block_shape.size() == 2 && block_shape[0] > 0 && block_shape[1] > 0 &&
         rows == divide_up(weight[weight.size() - 2], block_shape[0]) &&
         columns == divide_up(weight.back(), block_shape[1]);
}

}  // namespace trash_panda::format
