#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "trash_panda/base/error.h"
#include "trash_panda/base/json_depth.h"

namespace trash_panda::format {

/// JSON read strictly on top of simdjson's On-Demand parser.
///
/// On-Demand validates only what is looked at. Headers and indexes come from strangers, so every
/// value is looked at here: what is used by the read_ functions, the rest by walk_value().

using JsonParser = simdjson::ondemand::parser;
using JsonDocument = simdjson::ondemand::document;
using JsonObject = simdjson::ondemand::object;
using JsonArray = simdjson::ondemand::array;
using JsonField = simdjson::ondemand::field;
using JsonValue = simdjson::ondemand::value;
using JsonType = simdjson::ondemand::json_type;

/// Bytes that must be readable after a text that is parsed in place.
inline constexpr std::size_t kJsonPaddingBytes = simdjson::SIMDJSON_PADDING;

/// An Error of reason "json" that says what simdjson found.
[[nodiscard]] Error json_error(simdjson::error_code code);

/// Finds the type of the next value by its first character. @retval kCorrupt  Not a JSON value.
Result<JsonType> json_type_of(JsonValue& value);

/// "a number", "a string", "null": for messages.
[[nodiscard]] std::string_view json_type_name(JsonType type);

/// Reads and consumes a string, escapes resolved. @return Valid as long as the document's text.
/// @retval kCorrupt  Reason "json": a broken escape, a lone surrogate.
Result<std::string_view> read_json_string(JsonValue& value);
/// Reads a field's key like read_json_string().
Result<std::string_view> read_json_key(JsonField& field);

/// Reads a whole number below 2^64, written without sign, fraction and exponent.
///
/// @param what  Named in the message: "a dimension".
/// @retval kCorrupt  Reason "schema" for any other JSON value, "json" for what is none.
Result<std::uint64_t> read_json_u64(JsonValue& value, std::string_view what);

/// Consumes `null`. @retval kCorrupt  Reason "json": something else that begins like it.
Result<void> read_json_null(JsonValue& value);

/// Consumes any value and checks all of it.
///
/// @param depth  Containers that are open around the value.
Result<void> walk_json_value(JsonValue& value, unsigned depth);

/// Checks that nothing but white space follows the document's root value.
Result<void> expect_json_end(JsonDocument& document);

}  // namespace trash_panda::format
