#pragma once

#include <cstdint>
#include <optional>

#include "trash_panda/format/tensor_record.h"

namespace trash_panda::format {

/// Bytes of a tensor: the product of `shape` times the dtype's width. Nothing when that needs more
/// than 64 bits, or when elements narrower than a byte don't fill the last one.
[[nodiscard]] std::optional<std::uint64_t> tensor_size_bytes(Dtype dtype, const Shape& shape);

}  // namespace trash_panda::format
