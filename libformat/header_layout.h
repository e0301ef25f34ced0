#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/text_arena.h"

namespace trash_panda::format {

/// A tensor as a header states it, before anything about it was checked.
struct StatedTensor {
  std::string_view name;  ///< In the header's text, or in the parser's memory.
  Dtype dtype;
  Shape shape;
  std::uint64_t begin_bytes;  ///< From the start of the data section, like the next.
  std::uint64_t end_bytes;
};

/// Bytes that a tensor takes. `name` is for messages.
/// @retval kCorrupt  The product overflows (reason "overflow") or is no whole number of bytes
///                   (reason "subbyte").
Result<std::uint64_t> tensor_size_bytes(std::string_view name, Dtype dtype, const Shape& shape);

/// Checks that the tensors cover the data section exactly and that each range has the size of its
/// tensor, and sorts them by their place.
///
/// @param names              Keeps the names of the result.
/// @param data_offset_bytes  Where the data section starts in the file.
/// @retval kCorrupt  Reasons: offsets, size_mismatch, overflow, subbyte, truncated, trailing.
Result<std::vector<TensorRecord>> lay_out_tensors(std::vector<StatedTensor> stated,
                                                  TextArena& names, std::uint64_t data_offset_bytes,
                                                  std::uint64_t file_size_bytes);

/// A tensor's name for messages: quoted, on one line, cut when very long.
[[nodiscard]] std::string quote_name(std::string_view name);

}  // namespace trash_panda::format
