#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "trash_panda/base/json_depth.h"

namespace trash_panda::format {

/// Parses JSON of strangers into a tree that can be copied and printed without fear for the stack.
///
/// @return A discarded value for what is no JSON, or is nested deeper than kJsonDepthMax.
template <class Json = nlohmann::json>
[[nodiscard]] Json parse_foreign_json(std::string_view text) {
  return is_json_too_deep(text) ? Json(Json::value_t::discarded)
                                : Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace trash_panda::format
