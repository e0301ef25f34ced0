#include "trash_panda/base/implementation.h"

#include <fmt/format.h>

namespace trash_panda::internal {

Error implementation_unsupported(std::string_view name, std::string_view instructions,
                                 std::string_view what) {
  return {ErrorCode::kUnsupported,
          fmt::format("this CPU has no {}, which the implementation \"{}\" of {} needs",
                      instructions, name, what)};
}

Error implementation_unknown(std::string_view name, const std::vector<std::string_view>& names,
                             std::string_view what) {
  return {ErrorCode::kUsage, fmt::format("{} has no implementation \"{}\"; there are {}", what,
                                         name, fmt::join(names, ", "))};
}

}  // namespace trash_panda::internal
