#pragma once

#include <string>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/hardware.h"

namespace trash_panda::plan {

/// Name and version of the document, in its "schema" member.
inline constexpr std::string_view kHardwareSchema = "trash-panda/hardware/1";

/// Writes a machine as JSON on many lines. Deterministic: every member is written, in a fixed
/// order, what was not measured as null. @see schemas/hardware.schema.json
[[nodiscard]] std::string write_hardware(const Hardware& hardware);

/// Reads a machine back. Members that are missing or null are unknown; members that this version
/// does not know are ignored, as later ones only add to the document.
///
/// @param where  Name of the file, for messages.
/// @retval kCorrupt      Not JSON, not this document, or a member of a wrong type, which the
///                       message names.
/// @retval kUnsupported  A newer version of the document.
Result<Hardware> parse_hardware(std::string_view text, std::string_view where);

}  // namespace trash_panda::plan
