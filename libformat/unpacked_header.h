#pragma once

#include <string>

#include "trash_panda/format/pack_unpack.h"

namespace trash_panda::format {

/// Length field and header of a safetensors file, filled up with spaces to eight bytes.
[[nodiscard]] std::string make_unpacked_header(const UnpackedFile& file);

/// The index of several files: `model.safetensors.index.json`.
[[nodiscard]] std::string make_unpacked_index(const std::vector<UnpackedFile>& files);

}  // namespace trash_panda::format
