#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trash_panda::plan {

/// Most parts of a dotted key that are read: a plan's own have two.
inline constexpr unsigned kTomlKeyPartsMax = 16;

/// Finds a key or table header of more than kTomlKeyPartsMax parts.
///
/// toml++ makes a table of each part and takes tables apart by recursion, so that long keys would
/// overflow the stack. Tells strings and comments apart as TOML does, so that up to the first
/// fault in the text, which ends toml++'s reading, both see the same keys.
///
/// @return The line of the key, counted from 1; nothing when all are short enough.
[[nodiscard]] std::optional<std::uint64_t> find_long_toml_key(std::string_view text);

/// Where the string of TOML that begins at `begin` ends: behind its closing quotes, or at what ends
/// it unfinished.
[[nodiscard]] std::size_t end_of_toml_string(std::string_view text, std::size_t begin);

}  // namespace trash_panda::plan
