#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace trash_panda::cli {

/// Documents keep the order in which their members were added: what matters most comes first.
using Json = nlohmann::ordered_json;

/// A document on many lines, for stdout.
[[nodiscard]] std::string json_document(const Json& document);

/// An object on one line, for stderr.
///
/// In both, bytes that are no UTF-8 become U+FFFD: names are whatever a file holds.
[[nodiscard]] std::string json_line(const Json& object);

}  // namespace trash_panda::cli
