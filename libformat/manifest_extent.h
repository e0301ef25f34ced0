#pragma once

#include <string>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/format/manifest.h"

namespace trash_panda::format {

/// An extent as the manifest has it, on one line.
[[nodiscard]] std::string write_extent_line(const PackedExtent& extent);

/// Reads what write_extent_line() wrote. Whether its numbers agree is not checked.
///
/// @param where  Name of the file, for messages.
/// @retval kCorrupt, kUnsupported  As parse_manifest().
Result<PackedExtent> parse_extent_line(std::string_view line, std::string_view where);

}  // namespace trash_panda::format
