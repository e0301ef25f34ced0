#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace trash_panda {

/// Number of single-character insertions, deletions, replacements and swaps of neighbours that
/// turn `from` into `to` (optimal string alignment); ASCII letters compare case-insensitively.
[[nodiscard]] std::size_t edit_distance(std::string_view from, std::string_view to);

/// Finds what the user probably meant by a name that does not exist: "did you mean …".
///
/// Near means at most one edit per three characters of the longer name, at least one; a known
/// name that begins with the typed one counts as near from three characters on.
///
/// @param known  Candidates; among equally near ones the first wins.
/// @return A view into `known`; empty when nothing is near.
[[nodiscard]] std::string_view nearest_name(std::string_view typed,
                                            std::span<const std::string_view> known);

}  // namespace trash_panda
