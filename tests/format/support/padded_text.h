#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "trash_panda/base/aligned_buffer.h"

#include "base/support/temp_dir.h"
#include "json_walk.h"

namespace trash_panda::testing {

/// A copy of a text with what must be readable behind it, as a reader of a file makes it.
inline AlignedBuffer padded_text(std::string_view text) {
  AlignedBuffer buffer = must(AlignedBuffer::create(text.size() + format::kJsonPaddingBytes));
  std::ranges::copy(std::as_bytes(std::span(text)), buffer.data());
  return buffer;
}

}  // namespace trash_panda::testing
