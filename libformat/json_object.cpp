#include "json_object.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

namespace trash_panda::format {

namespace {

constexpr std::size_t kChecksumDigits = 32;

bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

}  // namespace

std::string JsonPlace::to_string() const {
  std::string text = index == kNoIndex ? printable(key) : fmt::format("{}[{}]", key, index);
  if (parent == nullptr) {
    return text;
  }
  return fmt::format("{}{}{}", parent->to_string(), parent->parent == nullptr ? ": " : ".", text);
}

Error json_error(const JsonPlace& place, std::string_view what) {
  return Error(ErrorCode::kCorrupt, fmt::format("{} {}", place.to_string(), what))
      .with_reason("schema");
}

Result<ManifestObject> ManifestObject::open(simdjson::dom::element element,
                                            const JsonPlace& place) {
  simdjson::dom::object object;
  if (element.get(object) != simdjson::SUCCESS) {
    return std::unexpected(json_error(place, "is not an object"));
  }
  std::vector<std::string_view> keys;
  keys.reserve(object.size());
  for (const auto field : object) {
    keys.push_back(field.key);
  }
  std::ranges::sort(keys);
  const auto twice = std::ranges::adjacent_find(keys);
  if (twice != keys.end()) {
    return std::unexpected(
        json_error(place, fmt::format("has the key \"{}\" twice", printable(*twice))));
  }
  return ManifestObject(object, place);
}

Error ManifestObject::error(std::string_view key, std::string_view what) const {
  return json_error(JsonPlace{.parent = place_, .key = key}, what);
}

bool ManifestObject::has(std::string_view key) const {
  return object_.at_key(key).error() == simdjson::SUCCESS;
}

Result<simdjson::dom::element> ManifestObject::element(std::string_view key) const {
  simdjson::dom::element value;
  if (object_.at_key(key).get(value) != simdjson::SUCCESS) {
    return std::unexpected(error(key, "is missing"));
  }
  return value;
}

Result<std::uint64_t> ManifestObject::number(std::string_view key) const {
  TP_ASSIGN_OR_RETURN(const simdjson::dom::element value, element(key));
  // Only what is written as an integer: 1.0 and 1e3 are doubles to the parser.
  if (!value.is_uint64() && !value.is_int64()) {
    return std::unexpected(error(key, "is not a whole number"));
  }
  std::uint64_t number = 0;
  if (value.get(number) != simdjson::SUCCESS) {
    return std::unexpected(error(key, "is negative"));
  }
  return number;
}

Result<std::string_view> ManifestObject::text(std::string_view key) const {
  TP_ASSIGN_OR_RETURN(const simdjson::dom::element value, element(key));
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) {
    return std::unexpected(error(key, "is not a string"));
  }
  return text;
}

Result<std::string_view> ManifestObject::checksum(std::string_view key) const {
  TP_ASSIGN_OR_RETURN(const std::string_view digits, text(key));
  if (digits.size() != kChecksumDigits || !std::ranges::all_of(digits, is_hex_digit)) {
    return std::unexpected(error(key, "is not a checksum of 32 hex digits"));
  }
  return digits;
}

Result<simdjson::dom::array> ManifestObject::array(std::string_view key) const {
  TP_ASSIGN_OR_RETURN(const simdjson::dom::element value, element(key));
  simdjson::dom::array array;
  if (value.get(array) != simdjson::SUCCESS) {
    return std::unexpected(error(key, "is not an array"));
  }
  return array;
}

}  // namespace trash_panda::format
