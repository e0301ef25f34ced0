#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trash_panda::cli {

/// Lays out rows in columns, two spaces apart, without trailing spaces.
///
/// @param alignment  One letter a column: 'l' or 'r'.
/// @param rows       Cells without control characters; a row may be shorter than `alignment`.
[[nodiscard]] std::string format_table(std::string_view alignment,
                                       const std::vector<std::vector<std::string>>& rows);

/// Number of code points of UTF-8 text: what it takes on a terminal, wide characters aside.
[[nodiscard]] std::size_t display_width(std::string_view text);

}  // namespace trash_panda::cli
