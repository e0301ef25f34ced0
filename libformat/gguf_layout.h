#pragma once

#include <cstdint>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/tensor_record.h"

namespace trash_panda::format {

/// Where the data of a GGUF file are, by its header.
struct GgufData {
  std::uint64_t header_bytes;  ///< To the end of the last tensor's description.
  std::uint64_t alignment_bytes;
  std::uint64_t file_size_bytes;
};

/// Puts tensors in the order of their data, checks that those fill the file, and returns where the
/// data section starts.
///
/// @param tensors  `offset_bytes` is from the start of the data section, and becomes one from the
///                 start of the file.
/// @retval kCorrupt  An offset is off the alignment, tensors overlap or leave a gap, the file is
///                   truncated or goes on after the last one.
Result<std::uint64_t> lay_out_gguf(std::vector<TensorRecord>& tensors, const GgufData& data);

}  // namespace trash_panda::format
