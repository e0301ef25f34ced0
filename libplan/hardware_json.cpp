#include "trash_panda/plan/hardware_json.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/json_depth.h"
#include "trash_panda/base/printable.h"

#include "hardware_fields.h"

namespace trash_panda::plan {
namespace {

/// Members keep the order in which they were added.
using OrderedJson = nlohmann::ordered_json;

/// Largest number that is read: what a signed reader of the same file can hold as well.
constexpr auto kHardwareNumberMax =
    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

/// Collects the members of one struct into a JSON object.
class HardwareWriter {
 public:
  template <class T>
  void operator()(const char* name, const T& value) {
    object_[name] = to_json(value);
  }

  [[nodiscard]] OrderedJson take() { return std::move(object_); }

 private:
  static OrderedJson to_json(std::uint64_t number) { return number; }
  static OrderedJson to_json(bool flag) { return flag; }
  static OrderedJson to_json(const std::string& text) { return text; }
  template <class T>
  static OrderedJson to_json(const std::optional<T>& value) {
    return value ? to_json(*value) : OrderedJson(nullptr);
  }
  template <class T>
  static OrderedJson to_json(const std::vector<T>& values) {
    OrderedJson array = OrderedJson::array();
    for (const T& value : values) {
      array.push_back(to_json(value));
    }
    return array;
  }
  template <class T>
    requires std::is_aggregate_v<T>
  static OrderedJson to_json(const T& fields) {
    HardwareWriter writer;
    visit_fields(writer, fields);
    return writer.take();
  }

  OrderedJson object_ = OrderedJson::object();
};

/// Fills one struct from a JSON object; the first member of a wrong type is kept as the error.
class HardwareReader {
 public:
  HardwareReader(const OrderedJson& object, std::string place, std::optional<Error>& error)
      : object_(object), place_(std::move(place)), error_(error) {}

  template <class T>
  void operator()(const char* name, T& target) {
    const auto member = object_.find(name);
    if (!error_ && member != object_.end() && !member->is_null()) {
      read(*member, place_.empty() ? name : fmt::format("{}.{}", place_, name), target);
    }
  }

 private:
  void fail(const std::string& place, std::string_view wanted) {
    if (!error_) {
      error_ = Error(ErrorCode::kCorrupt, fmt::format("{} must be {}", place, wanted));
    }
  }

  void read(const OrderedJson& json, const std::string& place, std::uint64_t& number) {
    if (!json.is_number_unsigned() || json.get<std::uint64_t>() > kHardwareNumberMax) {
      fail(place, fmt::format("a whole number from 0 to {}", kHardwareNumberMax));
    } else {
      number = json.get<std::uint64_t>();
    }
  }
  void read(const OrderedJson& json, const std::string& place, bool& flag) {
    if (json.is_boolean()) {
      flag = json.get<bool>();
    } else {
      fail(place, "true or false");
    }
  }
  void read(const OrderedJson& json, const std::string& place, std::string& text) {
    if (json.is_string()) {
      text = json.get<std::string>();
    } else {
      fail(place, "a string");
    }
  }
  template <class T>
  void read(const OrderedJson& json, const std::string& place, std::optional<T>& value) {
    read(json, place, value.emplace());
  }
  template <class T>
  void read(const OrderedJson& json, const std::string& place, std::vector<T>& values) {
    if (!json.is_array()) {
      fail(place, "an array");
      return;
    }
    for (std::size_t index = 0; index < json.size(); ++index) {
      read(json[index], fmt::format("{}[{}]", place, index), values.emplace_back());
    }
  }
  template <class T>
    requires std::is_aggregate_v<T>
  void read(const OrderedJson& json, const std::string& place, T& fields) {
    if (!json.is_object()) {
      fail(place, "an object");
      return;
    }
    HardwareReader reader(json, place, error_);
    visit_fields(reader, fields);
  }

  const OrderedJson& object_;
  std::string place_;
  std::optional<Error>& error_;
};

Result<void> check_schema(const OrderedJson& document) {
  const auto schema = document.is_object() ? document.find("schema") : document.end();
  if (!document.is_object() || schema == document.end() || !schema->is_string()) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt, "this describes no machine: it has no \"schema\"")
            .with_hint("`trash-panda hwreport --json -o FILE` writes one"));
  }
  const std::string name = schema->get<std::string>();
  const std::string_view family = kHardwareSchema.substr(0, kHardwareSchema.rfind('/') + 1);
  if (name == kHardwareSchema) {
    return {};
  }
  return std::unexpected(
      Error(name.starts_with(family) ? ErrorCode::kUnsupported : ErrorCode::kCorrupt,
            fmt::format("schema is {}, this program reads {}", printable(name), kHardwareSchema)));
}

}  // namespace

std::string write_hardware(const Hardware& hardware) {
  HardwareWriter writer;
  writer("schema", std::string(kHardwareSchema));
  visit_fields(writer, hardware);
  return writer.take().dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

Result<Hardware> parse_hardware(std::string_view text, std::string_view where) {
  if (is_json_too_deep(text)) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt, fmt::format("nested deeper than {} levels", kJsonDepthMax))
            .with_context(printable(where)));
  }
  const OrderedJson document = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) {
    return std::unexpected(Error(ErrorCode::kCorrupt, "not JSON").with_context(printable(where)));
  }
  if (Result<void> checked = check_schema(document); !checked) {
    return std::unexpected(std::move(checked).error().with_context(printable(where)));
  }
  Hardware hardware;
  std::optional<Error> error;
  HardwareReader reader(document, std::string(), error);
  visit_fields(reader, hardware);
  if (error) {
    return std::unexpected((*std::move(error)).with_context(printable(where)));
  }
  return hardware;
}

}  // namespace trash_panda::plan
