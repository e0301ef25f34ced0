#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include "trash_panda/base/error.h"

namespace trash_panda::fuzz {

/// Feeds one input to a parser and asserts what must hold of whatever comes out.
///
/// @param input  Exactly as many bytes as can be read: nothing is behind the last one.
/// @return Whether the parser took it, in one of the ways that it was tried.
using Target = bool (*)(std::string_view input);

/// The targets that are linked into this program, by name.
std::map<std::string_view, Target>& targets();

/// What code under test takes for buffers, whatever its input is.
inline constexpr std::size_t kBufferBytes = 1U << 20U;

/// Adds a target; called from the initialiser of a constant in its source file.
bool add_target(std::string_view name, Target target, std::size_t buffer_bytes = kBufferBytes);

/// The most that a target of this program takes for buffers.
std::size_t buffer_bytes_max();

/// Asserts that a message is one line of text that a person can read.
void check_message(const Error& error);

/// Asserts what holds of every refusal by a parser: it blames the input, and check_message().
void check_refusal(const Error& error);

/// The largest number in a safetensors header: the end of its last tensor, if it is a good one.
/// With it headers without their data, and those that a mutation made longer, get past the check
/// of the file's size.
std::uint64_t largest_number(std::string_view text);

}  // namespace trash_panda::fuzz
