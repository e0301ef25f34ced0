#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"

namespace trash_panda {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

/// Rounds `value` up to a multiple of `alignment`. @return kCorrupt when that overflows.
Result<std::uint64_t> round_up(std::uint64_t value, std::uint64_t alignment);

/// Reads an amount of memory or storage: "1.5GB" and "20 GB" are decimal, "4GiB" and a bare "4G"
/// binary, a plain number bytes; case does not matter.
///
/// @param whole_bytes  What "N%" is a part of; 0 refuses percentages.
/// @retval kUsage  Not a size, negative, or 2^64 bytes and more.
Result<std::uint64_t> parse_bytes(std::string_view text, std::uint64_t whole_bytes = 0);

/// Writes a size for people, decimal with three significant digits: "12.1 GB", "831 kB", "0 B".
std::string format_bytes(std::uint64_t bytes);

/// Writes a count with thousands separators: "91,991".
std::string format_count(std::uint64_t count);

}  // namespace trash_panda
