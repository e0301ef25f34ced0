#pragma once

#include <cstdint>
#include <span>

#include "trash_panda/base/error.h"
#include "trash_panda/format/safetensors_header.h"

#include "json_walk.h"

namespace trash_panda::format {

/// parse_header() for a caller that reads many headers: the parser's memory is reused, and the
/// text is not copied.
///
/// @param text           The header, without the length field.
/// @param padded_bytes   Bytes that are readable from text.data(): at least kJsonPaddingBytes more
///                       than the text has. Their values do not matter.
Result<SafetensorsHeader> parse_padded_header(JsonParser& parser, std::string_view text,
                                              std::size_t padded_bytes,
                                              std::uint64_t file_size_bytes);

}  // namespace trash_panda::format
