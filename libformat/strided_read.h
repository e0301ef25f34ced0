#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/format/tensor_record.h"

namespace trash_panda::format {

/// Reads a part of a tensor with strides, gathering its elements into row-major order.
///
/// Memory is bounded: a few MB beside `target`, however far apart the elements lie.
///
/// @param offset_bytes  Of the part within the tensor as row-major order has it.
Result<void> read_strided(const File& file, const TensorRecord& tensor, std::uint64_t offset_bytes,
                          std::span<std::byte> target);

}  // namespace trash_panda::format
