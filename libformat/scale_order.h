#pragma once

#include <cstdint>
#include <vector>

#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// Stored elements of a scale that are read at a time, at most: a few MB, however large it is.
inline constexpr std::uint64_t kScaleReadElementsMax = 262'144;

/// A rectangle of a canonical grid of scales, and the run of stored elements that holds it. Grids
/// of a stack follow each other: rows are counted through all of them.
struct ScaleRead {
  std::uint64_t stored_begin;
  std::uint64_t stored_end;
  std::uint64_t row_begin;
  std::uint64_t row_end;
  std::uint64_t column_begin;
  std::uint64_t column_end;
};

/// Where the elements of a grid of scales lie in a stored tensor that is cut or swizzled.
class ScaleOrder {
 public:
  /// @param scale  Of the two transforms that move elements.
  ScaleOrder(const TensorRecord& stored, const WeightScale& scale);

  [[nodiscard]] std::uint64_t columns() const { return columns_; }
  [[nodiscard]] std::uint64_t stored_index(std::uint64_t row, std::uint64_t column) const;
  /// Elements from this column on that are neighbours in the stored tensor, too.
  [[nodiscard]] std::uint64_t neighbours(std::uint64_t column) const;

  /// What to read for the canonical elements [first, end), each stored element once: as many whole
  /// rows at a time as kScaleReadElementsMax holds, or parts of rows where one is longer.
  [[nodiscard]] std::vector<ScaleRead> reads(std::uint64_t first, std::uint64_t end) const;

 private:
  [[nodiscard]] ScaleRead read_of(std::uint64_t row_begin, std::uint64_t row_end,
                                  std::uint64_t column_begin, std::uint64_t column_end) const;

  bool is_swizzled_;
  std::uint64_t rows_;         ///< Of one grid.
  std::uint64_t columns_;      ///< As above, and so for all below.
  std::uint64_t stored_rows_;  ///< Of one grid.
  std::uint64_t stored_columns_;
  std::uint64_t strip_rows_;  ///< Whose stored elements are interleaved: read together.
};

}  // namespace trash_panda::format
