#include "json_object.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

namespace trash_panda::format {

namespace {

constexpr std::size_t kChecksumDigits = 32;

bool is_hex_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/// A key that stands twice. Few are compared each with each, which is faster than sorting them.
std::optional<std::string_view> find_twice(const std::vector<JsonMember>& members) {
  constexpr std::size_t kFew = 16;
  std::vector<std::string_view> keys;
  if (members.size() > kFew) {
    std::ranges::transform(members, std::back_inserter(keys), &JsonMember::key);
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    return twice == keys.end() ? std::nullopt : std::optional(*twice);
  }
  for (std::size_t i = 1; i < members.size(); ++i) {
    const auto before = std::span(members).first(i);
    if (std::ranges::find(before, members[i].key, &JsonMember::key) != before.end()) {
      return members[i].key;
    }
  }
  return std::nullopt;
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
  std::vector<JsonMember> members;
  members.reserve(object.size());
  for (const auto field : object) {
    members.push_back({.key = field.key, .value = field.value});
  }
  if (const std::optional<std::string_view> twice = find_twice(members)) {
    return std::unexpected(
        json_error(place, fmt::format("has the key \"{}\" twice", printable(*twice))));
  }
  return ManifestObject(std::move(members), place);
}

Error ManifestObject::error(std::string_view key, std::string_view what) const {
  return json_error(JsonPlace{.parent = place_, .key = key}, what);
}

const JsonMember* ManifestObject::find(std::string_view key) const {
  const auto found = std::ranges::find(members_, key, &JsonMember::key);
  return found == members_.end() ? nullptr : &*found;
}

bool ManifestObject::has(std::string_view key) const {
  return find(key) != nullptr;
}

Result<simdjson::dom::element> ManifestObject::element(std::string_view key) const {
  const JsonMember* member = find(key);
  if (member == nullptr) {
    return std::unexpected(error(key, "is missing"));
  }
  return member->value;
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
