#pragma once

#include <string>
#include <string_view>

#include "command_description.h"

namespace trash_panda::cli {

/// "trash-panda", "trash-panda-plan": name of a command's page.
[[nodiscard]] std::string page_name(const CommandDescription& command);

/// The manual page of a command, in roff (man macros).
///
/// @param prose  Sections in roff to put after the options; may be empty.
[[nodiscard]] std::string man_page(const CommandDescriptions& commands,
                                   const CommandDescription& command, std::string_view prose);

}  // namespace trash_panda::cli
