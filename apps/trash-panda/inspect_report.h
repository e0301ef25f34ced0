#pragma once

#include <string>
#include <string_view>

#include "console.h"
#include "inspect_summary.h"

namespace trash_panda::cli {

/// What `inspect` says to people.
///
/// @param name  The model as the user calls it.
[[nodiscard]] std::string inspect_text(const InspectSummary& summary, std::string_view name,
                                       const Console& console);

/// The same as a JSON document. @see schemas/inspect.schema.json
[[nodiscard]] std::string inspect_json(const InspectSummary& summary);

}  // namespace trash_panda::cli
