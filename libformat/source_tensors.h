#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/manifest.h"

namespace trash_panda::format {

/// What the tensors of an extent, which was checked, are called in the source; scales of which the
/// source has none are called as in the pack.
[[nodiscard]] std::vector<std::string> source_names(const PackedExtent& extent);

/// Which tensor of an extent, which was checked, is the scale of a weight that has one.
[[nodiscard]] std::size_t scale_index(const PackedExtent& extent, std::size_t weight_index);

/// How many bytes the source has of a tensor; where they can't be made of it, it keeps its own.
[[nodiscard]] std::uint64_t source_size_bytes(const PackedTensor& tensor);

/// Checks what a manifest, which is right otherwise, says of its source: that a checkpoint can be
/// made of it.
///
/// @retval kCorrupt  A file that is not listed, two tensors of one name in a file, a reserved name,
///                   or a dtype or shape that the bytes of the tensor do not fill.
Result<void> check_sources(const Manifest& manifest);

}  // namespace trash_panda::format
