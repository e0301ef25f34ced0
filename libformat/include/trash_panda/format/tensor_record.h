#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trash_panda/format/dtype.h"

namespace trash_panda::format {

/// Row-major, outermost first; empty for a scalar.
using Shape = std::vector<std::uint64_t>;

/// "[4096, 1024]", "[]".
[[nodiscard]] std::string to_string(const Shape& shape);

/// Where one tensor lies in a checkpoint. Plain data; no bytes of the tensor are held.
struct TensorRecord {
  std::string name;
  Dtype dtype;
  Shape shape;
  std::uint32_t file_index;    ///< Into Checkpoint::files().
  std::uint64_t offset_bytes;  ///< From the start of the file, not of the data section.
  std::uint64_t size_bytes;    ///< Product of `shape` times the dtype's width.
  /// Elements from one index to the next, by dimension, where they are not stored row-major and
  /// without gaps, as only torch checkpoints do it; empty for all others. `offset_bytes` is where
  /// the first element is; the last may lie anywhere behind. Checkpoint::read_tensor() gathers
  /// them.
  Shape strides = {};
};

}  // namespace trash_panda::format
