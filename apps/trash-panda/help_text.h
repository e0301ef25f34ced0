#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "command_description.h"

namespace trash_panda::cli {

/// The help of a command as --help prints it, ending with examples. For the program itself also
/// the list of commands.
[[nodiscard]] std::string help_text(const CommandDescriptions& commands,
                                    const CommandDescription& command);

/// Breaks a text at spaces into lines of at most `width` characters.
[[nodiscard]] std::vector<std::string> wrap(std::string_view text, std::size_t width);

}  // namespace trash_panda::cli
