#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <simdjson.h>

#include "trash_panda/base/error.h"

namespace trash_panda::format {

/// A place in a JSON document, for messages: kept as links, put into words only when needed.
struct JsonPlace {
  static constexpr std::size_t kNoIndex = static_cast<std::size_t>(-1);

  const JsonPlace* parent = nullptr;  ///< Null at the root, whose `key` is the file's name.
  std::string_view key;
  std::size_t index = kNoIndex;  ///< Element of the array `key`.

  /// "model.panda/manifest.json: extents[3].tensors[0]".
  [[nodiscard]] std::string to_string() const;
};

/// An error at a place of a document: kCorrupt with reason "schema".
Error json_error(const JsonPlace& place, std::string_view what);

/// A member of an object.
struct JsonMember {
  std::string_view key;
  simdjson::dom::element value;
};

/// Strict reading of one JSON object: every getter fails by name when the member is missing or of
/// another type, and a key that stands twice is refused, since two readers might not agree on it.
///
/// Its members are listed once, since looking one up in a parsed document walks through it: a
/// manifest may have hundreds of thousands of objects.
class ManifestObject {
 public:
  /// @param place  Outlives the object.
  static Result<ManifestObject> open(simdjson::dom::element element, const JsonPlace& place);

  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] Result<std::uint64_t> number(std::string_view key) const;
  [[nodiscard]] Result<std::string_view> text(std::string_view key) const;
  /// 32 lower-case hex digits.
  [[nodiscard]] Result<std::string_view> checksum(std::string_view key) const;
  [[nodiscard]] Result<simdjson::dom::array> array(std::string_view key) const;
  [[nodiscard]] Result<simdjson::dom::element> element(std::string_view key) const;
  [[nodiscard]] std::span<const JsonMember> members() const { return members_; }
  [[nodiscard]] const JsonPlace& place() const { return *place_; }
  /// The error that member `key` is not as it should be.
  [[nodiscard]] Error error(std::string_view key, std::string_view what) const;

 private:
  ManifestObject(std::vector<JsonMember> members, const JsonPlace& place)
      : members_(std::move(members)), place_(&place) {}

  [[nodiscard]] const JsonMember* find(std::string_view key) const;

  std::vector<JsonMember> members_;
  const JsonPlace* place_;
};

}  // namespace trash_panda::format
