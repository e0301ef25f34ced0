#pragma once

#include <string>
#include <string_view>

#include "trash_panda/format/pack_unpack.h"

namespace trash_panda::format {

/// Length field and header of a safetensors file, filled up with spaces to eight bytes.
[[nodiscard]] std::string make_unpacked_header(const UnpackedFile& file);

/// Whether an index of that name can be written beside safetensors files: "x.index.json",
/// "x.index.fp16.json".
[[nodiscard]] bool is_unpacked_index_name(std::string_view name);

/// The text of a layout's index, which it has.
[[nodiscard]] std::string make_unpacked_index(const UnpackLayout& layout);

}  // namespace trash_panda::format
