#include "json_walk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

namespace trash_panda::format {

namespace {

constexpr std::string_view kWhiteSpace = " \t\n\r";

/// A value's own text: simdjson's token reaches up to the next token.
std::string_view trimmed_token(JsonValue& value) {
  const std::string_view token = value.raw_json_token();
  return token.substr(0, token.find_last_not_of(kWhiteSpace) + 1);
}

/// The text of a string without escapes; empty optional when it has some.
const char* end_of_plain_string(const char* begin, const char* limit) {
  const auto room = static_cast<std::size_t>(limit - begin);
  const void* quote = std::memchr(begin, '"', room);
  if (quote == nullptr) {
    return nullptr;
  }
  const char* end = static_cast<const char*>(quote);
  const auto length = static_cast<std::size_t>(end - begin);
  return std::memchr(begin, '\\', length) == nullptr ? end : nullptr;
}

/// Whether unescaped text holds a surrogate code point, which no UTF-8 text may: simdjson versions
/// differ in what they let through.
bool has_surrogate(std::string_view text) {
  for (std::size_t at = text.find('\xed'); at != std::string_view::npos;
       at = text.find('\xed', at + 1)) {
    if (at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) >= 0xa0) {
      return true;
    }
  }
  return false;
}

Result<std::string_view> checked(simdjson::simdjson_result<std::string_view> unescaped) {
  std::string_view text;
  if (const simdjson::error_code code = std::move(unescaped).get(text); code != simdjson::SUCCESS) {
    return std::unexpected(json_error(code));
  }
  if (has_surrogate(text)) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt, "not valid JSON: a \\u escape is half of a surrogate pair")
            .with_reason("json"));
  }
  return text;
}

Result<void> walk_array(JsonValue& value, unsigned depth) {
  JsonArray array;
  if (const auto code = value.get_array().get(array); code != simdjson::SUCCESS) {
    return std::unexpected(json_error(code));
  }
  for (auto item : array) {
    JsonValue element;
    if (const auto code = item.get(element); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    TP_RETURN_IF_ERROR(walk_json_value(element, depth));
  }
  return {};
}

Result<void> walk_object(JsonValue& value, unsigned depth) {
  JsonObject object;
  if (const auto code = value.get_object().get(object); code != simdjson::SUCCESS) {
    return std::unexpected(json_error(code));
  }
  for (auto item : object) {
    JsonField field;
    if (const auto code = std::move(item).get(field); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    TP_RETURN_IF_ERROR(read_json_key(field));
    TP_RETURN_IF_ERROR(walk_json_value(field.value(), depth));
  }
  return {};
}

Result<void> walk_number(JsonValue& value) {
  double number = 0;
  if (const auto code = value.get_double().get(number); code != simdjson::SUCCESS) {
    return std::unexpected(json_error(code));
  }
  return {};
}

Result<void> read_literal(JsonValue& value, std::string_view literal) {
  if (trimmed_token(value) != literal) {
    return std::unexpected(Error(ErrorCode::kCorrupt, fmt::format("not valid JSON: '{}'",
                                                                  printable(trimmed_token(value))))
                               .with_reason("json"));
  }
  return {};
}

}  // namespace

Error json_error(simdjson::error_code code) {
  std::string_view text = simdjson::error_message(code);
  text = text.substr(0, text.find_last_not_of(". ") + 1);
  return Error(ErrorCode::kCorrupt, fmt::format("not valid JSON: {}", text)).with_reason("json");
}

Result<JsonType> json_type_of(JsonValue& value) {
  JsonType type{};
  if (const auto code = value.type().get(type); code != simdjson::SUCCESS) {
    return std::unexpected(json_error(code));
  }
  return type;
}

std::string_view json_type_name(JsonType type) {
  switch (type) {
    case JsonType::array:
      return "a list";
    case JsonType::object:
      return "an object";
    case JsonType::number:
      return "a number";
    case JsonType::string:
      return "a string";
    case JsonType::boolean:
      return "a boolean";
    default:
      return "null";
  }
}

Result<std::string_view> read_json_string(JsonValue& value) {
  const std::string_view token = trimmed_token(value);
  // Most strings have no escapes: they are used where they lie. The token is looked at before it
  // is consumed; consuming is needed either way, so that On-Demand moves past a string as such.
  const char* begin = token.data() + 1;
  const char* limit = token.data() + token.size();
  if (const char* end = end_of_plain_string(begin, limit); end != nullptr && end + 1 == limit) {
    simdjson::ondemand::raw_json_string raw;
    if (const auto code = value.get_raw_json_string().get(raw); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    return std::string_view(begin, static_cast<std::size_t>(end - begin));
  }
  return checked(value.get_string());
}

Result<std::string_view> read_json_key(JsonField& field) {
  // The parser tells where a key begins. A closing quote exists, and no NUL before it: without
  // the one or with the other, simdjson refuses the whole text before any field is seen.
  const char* begin = field.key().raw();
  const char* end = std::strchr(begin, '"');
  TP_ASSERT(end != nullptr);
  const auto length = static_cast<std::size_t>(end - begin);
  if (std::memchr(begin, '\\', length) == nullptr) {
    return std::string_view(begin, length);
  }
  return checked(field.unescaped_key());
}

Result<std::uint64_t> read_json_u64(JsonValue& value, std::string_view what) {
  const std::string_view token = trimmed_token(value);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool digits_only = std::ranges::all_of(token, is_digit);
  const bool leading_zero = token.size() > 1 && token.front() == '0';
  std::uint64_t number = 0;
  bool fits = digits_only && !leading_zero && !token.empty();
  if (fits) {
    for (const char c : token) {
      fits = fits && !__builtin_mul_overflow(number, std::uint64_t{10}, &number) &&
             !__builtin_add_overflow(number, static_cast<std::uint64_t>(c - '0'), &number);
    }
  }
  if (fits) {
    return number;
  }
  const std::string text = printable(token.substr(0, 40));
  // Either some other JSON value, or no JSON at all; the walk finds out which.
  TP_RETURN_IF_ERROR(walk_json_value(value, kJsonDepthMax - 1));
  return std::unexpected(
      Error(ErrorCode::kCorrupt,
            fmt::format("{} must be a whole number from 0 to 2^64 - 1, not {}", what, text))
          .with_reason("schema"));
}

Result<void> read_json_null(JsonValue& value) {
  return read_literal(value, "null");
}

Result<void> walk_json_value(JsonValue& value, unsigned depth) {
  TP_ASSIGN_OR_RETURN(const JsonType type, json_type_of(value));
  switch (type) {
    case JsonType::array:
    case JsonType::object:
      if (depth >= kJsonDepthMax) {
        return std::unexpected(
            Error(ErrorCode::kCorrupt, fmt::format("JSON nested deeper than {} levels", depth))
                .with_reason("json"));
      }
      return type == JsonType::array ? walk_array(value, depth + 1) : walk_object(value, depth + 1);
    case JsonType::number:
      return walk_number(value);
    case JsonType::string:
      TP_RETURN_IF_ERROR(read_json_string(value));
      return {};
    case JsonType::boolean:
      return read_literal(value, trimmed_token(value).starts_with('t') ? "true" : "false");
    default:
      return read_literal(value, "null");
  }
}

Result<void> expect_json_end(JsonDocument& document) {
  const char* rest = nullptr;
  const simdjson::error_code code = document.current_location().get(rest);
  if (code == simdjson::OUT_OF_BOUNDS) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kCorrupt, "not valid JSON: there is text after the closing brace")
          .with_reason("json"));
}

}  // namespace trash_panda::format
