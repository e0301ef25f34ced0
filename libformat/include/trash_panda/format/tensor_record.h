#pragma once

#include <cstdint>
#include <string_view>

#include "trash_panda/format/dtype.h"
#include "trash_panda/format/ggml_type.h"
#include "trash_panda/format/shape.h"

namespace trash_panda::format {

/// Where one tensor lies in a checkpoint. Plain data; no bytes of the tensor are held.
struct TensorRecord {
  std::string_view name;  ///< Its text belongs to who made the record: the Checkpoint, as a rule.
  Dtype dtype;
  Shape shape;
  std::uint32_t file_index;    ///< Into Checkpoint::files().
  std::uint64_t offset_bytes;  ///< From the start of the file, not of the data section.
  std::uint64_t size_bytes;    ///< Product of `shape` times the dtype's width, or whole blocks.
  const GgmlType* ggml_type = nullptr;  ///< Of a kGgmlBlock tensor; null for all others.
  /// Elements from one index to the next, by dimension, where they are not stored row-major and
  /// without gaps, as only torch checkpoints do it; empty for all others. `offset_bytes` is where
  /// the first element is; the last may lie anywhere behind. Checkpoint::read_tensor() gathers
  /// them.
  Shape strides = {};
};

/// What people call the type of its elements: "BF16", "Q4_K".
[[nodiscard]] std::string_view type_name(const TensorRecord& tensor);

/// How many elements a tensor has: the product of its shape.
[[nodiscard]] std::uint64_t element_count(const TensorRecord& tensor);

}  // namespace trash_panda::format
