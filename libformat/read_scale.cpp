#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>

#include "trash_panda/base/error.h"
#include "trash_panda/format/weights.h"

#include "scale_swizzle.h"
#include "scale_values.h"

namespace trash_panda::format {

namespace {

std::uint64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

/// A grid's last two dimensions, whatever lies between them and before.
struct GridSize {
  std::size_t rows;
  std::size_t columns;
};

/// Cuts each grid of a row-major stack of them to its first rows and columns.
std::vector<float> crop(const std::vector<float>& stored, GridSize from, GridSize to) {
  std::vector<float> cropped;
  cropped.reserve(stored.size());
  for (std::size_t grid = 0; grid < stored.size(); grid += from.rows * from.columns) {
    for (std::size_t row = 0; row < to.rows; ++row) {
      const auto begin = stored.begin() + static_cast<std::ptrdiff_t>(grid + row * from.columns);
      cropped.insert(cropped.end(), begin, begin + static_cast<std::ptrdiff_t>(to.columns));
    }
  }
  return cropped;
}

/// The stored grid's size; ModelOpt keeps a dimension of 1 after each of the two.
GridSize stored_grid(const Shape& stored, const Shape& canonical) {
  const std::size_t rank = stored.size();
  return rank == canonical.size() + 2 ? GridSize{stored[rank - 4], stored[rank - 2]}
                                      : GridSize{stored[rank - 2], stored[rank - 1]};
}

}  // namespace

std::uint64_t scale_size_bytes(const WeightScale& scale) {
  return element_count(scale.shape) * sizeof(float);
}

Result<std::vector<float>> read_scale(const Checkpoint& checkpoint, const WeightScale& scale) {
  const TensorRecord& stored = checkpoint.tensors()[scale.tensor_index];
  std::vector<std::byte> bytes(stored.size_bytes);
  TP_RETURN_IF_ERROR(checkpoint.read_tensor(scale.tensor_index, bytes));
  std::vector<float> values = decode_scale(stored.dtype, bytes);
  if (scale.transform == ScaleTransform::kCrop) {
    const std::size_t rank = scale.shape.size();
    values = crop(values, stored_grid(stored.shape, scale.shape),
                  {scale.shape[rank - 2], scale.shape[rank - 1]});
  }
  if (scale.transform == ScaleTransform::kSwizzled) {
    values = unswizzle(values, stored.shape, scale.shape);
  }
  TP_ASSERT(values.size() == element_count(scale.shape));
  return values;
}

}  // namespace trash_panda::format
