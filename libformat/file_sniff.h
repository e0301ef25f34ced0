#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "trash_panda/base/error.h"

namespace trash_panda::format {

/// A kind of file that people hand over instead of a safetensors file.
struct ForeignFormat {
  std::string_view name;    ///< "a Git LFS pointer".
  std::string_view reason;  ///< Class of the error when the file does not claim to be safetensors.
  std::string_view hint;    ///< What to do about it.
};

/// Recognises another format by the first bytes of a file; nothing when they tell nothing.
///
/// Only for files that can't be safetensors: a header's length may look like a magic number.
[[nodiscard]] std::optional<ForeignFormat> sniff_foreign_format(std::span<const std::byte> head);

/// Error of reason "not_safetensors" for a file of that format.
[[nodiscard]] Error foreign_format_error(const ForeignFormat& format);

}  // namespace trash_panda::format
