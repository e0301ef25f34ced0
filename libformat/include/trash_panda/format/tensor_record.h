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
};

}  // namespace trash_panda::format
