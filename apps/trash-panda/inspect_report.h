#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "console.h"
#include "inspect_summary.h"

namespace trash_panda::cli {

/// What `inspect` says to people.
///
/// @param name    The model as the user calls it.
/// @param listed  Tensors to list, into InspectSummary::tensors.
[[nodiscard]] std::string inspect_text(const InspectSummary& summary, std::string_view name,
                                       const std::vector<std::size_t>& listed,
                                       const Console& console);

/// The same as a JSON document. @see schemas/inspect.schema.json
[[nodiscard]] std::string inspect_json(const InspectSummary& summary,
                                       const std::vector<std::size_t>& listed);

}  // namespace trash_panda::cli
