#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"

namespace trash_panda {

namespace internal {
Error implementation_unsupported(std::string_view name, std::string_view instructions,
                                 std::string_view what);
Error implementation_unknown(std::string_view name, const std::vector<std::string_view>& names,
                             std::string_view what);
}  // namespace internal

/// The implementation of that name.
///
/// @tparam T    Has `name`, `instructions` (for people) and `is_supported` (by this CPU).
/// @param what  It implements, for messages: "the exponent code".
/// @retval kUnsupported  This CPU lacks its instructions.
/// @retval kUsage        There is none of that name; the message lists those that there are.
template <class T>
Result<const T*> find_implementation(std::span<const T> implementations, std::string_view name,
                                     std::string_view what) {
  std::vector<std::string_view> names;
  for (const T& implementation : implementations) {
    if (implementation.name == name) {
      return implementation.is_supported ? Result<const T*>(&implementation)
                                         : std::unexpected(internal::implementation_unsupported(
                                               name, implementation.instructions, what));
    }
    names.push_back(implementation.name);
  }
  return std::unexpected(internal::implementation_unknown(name, names, what));
}

}  // namespace trash_panda
