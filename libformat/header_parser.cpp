#include "header_parser.h"

#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/format/name_index.h"

#include "header_layout.h"

namespace trash_panda::format {

namespace {

constexpr std::string_view kHeaderMetadataKey = "__metadata__";

/// Containers that are open inside a tensor's entry, and inside its lists.
constexpr unsigned kEntryDepth = 2;

Error broken_header(std::string_view reason, std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message)).with_reason(reason);
}

Error wrong_type(std::string_view what, JsonType found, std::string_view wanted,
                 std::string_view reason = "schema") {
  return broken_header(reason,
                       fmt::format("{} is {}, not {}", what, json_type_name(found), wanted));
}

/// A tensor's entry while its fields come in, in any order.
struct EntryFields {
  std::optional<Dtype> dtype;
  std::optional<Shape> shape;
  std::optional<std::array<std::uint64_t, 2>> offsets;
};

Result<Dtype> read_dtype(JsonValue& value) {
  TP_ASSIGN_OR_RETURN(const JsonType type, json_type_of(value));
  if (type != JsonType::string) {
    return std::unexpected(wrong_type("dtype", type, "a string"));
  }
  TP_ASSIGN_OR_RETURN(const std::string_view name, read_json_string(value));
  if (const std::optional<Dtype> dtype = parse_dtype(name)) {
    return *dtype;
  }
  return std::unexpected(
      Error(ErrorCode::kUnsupported,
            fmt::format("dtype {} is none of the safetensors format", quote_name(name)))
          .with_reason("dtype")
          .with_hint("save the file again with the safetensors library"));
}

Result<JsonArray> open_list(JsonValue& value, std::string_view what) {
  TP_ASSIGN_OR_RETURN(const JsonType type, json_type_of(value));
  if (type != JsonType::array) {
    return std::unexpected(wrong_type(what, type, "a list of whole numbers"));
  }
  JsonArray array;
  if (const auto code = value.get_array().get(array); code != simdjson::SUCCESS) {
    return std::unexpected(json_error(code));
  }
  return array;
}

Result<Shape> read_shape(JsonValue& value) {
  TP_ASSIGN_OR_RETURN(JsonArray list, open_list(value, "shape"));
  Shape shape;
  for (auto item : list) {
    JsonValue element;
    if (const auto code = item.get(element); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    TP_ASSIGN_OR_RETURN(const std::uint64_t dimension,
                        read_json_u64(element, "a dimension of its shape"));
    shape.push_back(dimension);
  }
  return shape;
}

Result<std::array<std::uint64_t, 2>> read_offsets(JsonValue& value) {
  TP_ASSIGN_OR_RETURN(JsonArray list, open_list(value, "data_offsets"));
  std::array<std::uint64_t, 2> offsets{};
  std::size_t count = 0;
  for (auto item : list) {
    JsonValue element;
    if (const auto code = item.get(element); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    TP_ASSIGN_OR_RETURN(const std::uint64_t number,
                        read_json_u64(element, "a number in data_offsets"));
    if (count < offsets.size()) {
      offsets.at(count) = number;
    }
    ++count;
  }
  if (count != offsets.size()) {
    return std::unexpected(
        broken_header("schema", fmt::format("data_offsets has {} numbers instead of 2", count)));
  }
  return offsets;
}

template <class T>
Result<void> set_once(std::optional<T>& field, std::string_view name, Result<T> value) {
  if (!value) {
    return std::unexpected(std::move(value).error());
  }
  if (field) {
    return std::unexpected(
        broken_header("duplicate", fmt::format("field \"{}\" is given twice", name)));
  }
  field = *std::move(value);
  return {};
}

Result<void> read_entry_field(EntryFields& entry, std::string_view key, JsonValue& value) {
  if (key == "dtype") {
    return set_once(entry.dtype, key, read_dtype(value));
  }
  if (key == "shape") {
    return set_once(entry.shape, key, read_shape(value));
  }
  if (key == "data_offsets") {
    return set_once(entry.offsets, key, read_offsets(value));
  }
  return walk_json_value(value, kEntryDepth);
}

Result<void> read_entry_object(EntryFields& entry, JsonValue& value) {
  JsonObject object;
  if (const auto code = value.get_object().get(object); code != simdjson::SUCCESS) {
    return std::unexpected(json_error(code));
  }
  for (auto item : object) {
    JsonField field;
    if (const auto code = std::move(item).get(field); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    TP_ASSIGN_OR_RETURN(const std::string_view key, read_json_key(field));
    TP_RETURN_IF_ERROR(read_entry_field(entry, key, field.value()));
  }
  return {};
}

/// The reference reader also takes an entry as [dtype, shape, data_offsets].
Result<void> read_entry_list(EntryFields& entry, JsonValue& value) {
  constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};
  TP_ASSIGN_OR_RETURN(JsonArray list, open_list(value, "the entry"));
  std::size_t count = 0;
  for (auto item : list) {
    JsonValue element;
    if (const auto code = item.get(element); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    TP_RETURN_IF_ERROR(count < kFields.size() ? read_entry_field(entry, kFields.at(count), element)
                                              : walk_json_value(element, kEntryDepth));
    ++count;
  }
  if (count > kFields.size()) {
    return std::unexpected(broken_header(
        "schema", fmt::format("the entry is a list of {} instead of 3 values", count)));
  }
  return {};
}

Result<EntryFields> read_entry(JsonValue& value) {
  EntryFields entry;
  TP_ASSIGN_OR_RETURN(const JsonType type, json_type_of(value));
  if (type == JsonType::object) {
    TP_RETURN_IF_ERROR(read_entry_object(entry, value));
  } else if (type == JsonType::array) {
    TP_RETURN_IF_ERROR(read_entry_list(entry, value));
  } else {
    return std::unexpected(wrong_type("its entry", type, "an object"));
  }
  const std::string_view missing = !entry.dtype     ? "dtype"
                                   : !entry.shape   ? "shape"
                                   : !entry.offsets ? "data_offsets"
                                                    : "";
  if (!missing.empty()) {
    return std::unexpected(
        broken_header("schema", fmt::format("its entry has no field \"{}\"", missing)));
  }
  return entry;
}

struct StatedHeader {
  std::vector<StatedTensor> tensors;
  std::optional<std::map<std::string, std::string>> metadata;
  bool names_metadata = false;  ///< `__metadata__` is a key, perhaps of null.
};

Result<void> read_metadata(JsonValue& value,
                           std::optional<std::map<std::string, std::string>>& metadata) {
  TP_ASSIGN_OR_RETURN(const JsonType type, json_type_of(value));
  if (type == JsonType::null) {
    return read_json_null(value);
  }
  metadata.emplace();
  if (type != JsonType::object) {
    return std::unexpected(
        wrong_type(kHeaderMetadataKey, type, "an object that maps strings to strings", "metadata"));
  }
  JsonObject object;
  if (const auto code = value.get_object().get(object); code != simdjson::SUCCESS) {
    return std::unexpected(json_error(code));
  }
  for (auto item : object) {
    JsonField field;
    if (const auto code = std::move(item).get(field); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    TP_ASSIGN_OR_RETURN(const std::string_view key, read_json_key(field));
    TP_ASSIGN_OR_RETURN(const JsonType value_type, json_type_of(field.value()));
    if (value_type != JsonType::string) {
      return std::unexpected(
          wrong_type(fmt::format("key {} of {}", quote_name(key), kHeaderMetadataKey), value_type,
                     "a string", "metadata")
              .with_hint("metadata values are strings: write numbers as text"));
    }
    std::string name(key);
    TP_ASSIGN_OR_RETURN(const std::string_view text, read_json_string(field.value()));
    const auto [place, is_new] = metadata->try_emplace(std::move(name), text);
    if (!is_new) {
      return std::unexpected(broken_header(
          "duplicate",
          fmt::format("key {} is twice in {}", quote_name(place->first), kHeaderMetadataKey)));
    }
  }
  return {};
}

/// Refuses a name that is there twice, in either spelling: readers differ in which one they keep.
Result<void> check_names_differ(const std::vector<StatedTensor>& tensors) {
  const auto name_at = [&](std::size_t i) { return tensors[i].name; };
  const NameIndex names(tensors.size(), name_at);
  if (const auto twice = names.find_twice(name_at)) {
    return std::unexpected(
        broken_header("duplicate", fmt::format("tensor {} is twice in the header",
                                               quote_name(name_at(twice->first))))
            .with_hint("readers differ in which one they take: save the file again"));
  }
  return {};
}

Result<void> read_header_field(StatedHeader& header, JsonField& field) {
  TP_ASSIGN_OR_RETURN(const std::string_view key, read_json_key(field));
  if (key == kHeaderMetadataKey) {
    if (std::exchange(header.names_metadata, true)) {
      return std::unexpected(
          broken_header("duplicate", fmt::format("{} is twice in the header", kHeaderMetadataKey)));
    }
    return read_metadata(field.value(), header.metadata);
  }
  Result<EntryFields> entry = read_entry(field.value());
  if (!entry) {
    return std::unexpected(
        std::move(entry).error().with_context(fmt::format("tensor {}", quote_name(key))));
  }
  header.tensors.push_back({.name = key,
                            .dtype = *entry->dtype,
                            .shape = *std::move(entry->shape),
                            .begin_bytes = (*entry->offsets)[0],
                            .end_bytes = (*entry->offsets)[1]});
  return {};
}

Result<StatedHeader> read_root(JsonDocument& document) {
  StatedHeader header;
  JsonObject root;
  if (const auto code = document.get_object().get(root); code != simdjson::SUCCESS) {
    return std::unexpected(code == simdjson::INCORRECT_TYPE
                               ? broken_header("json", "it is not a JSON object")
                               : json_error(code));
  }
  for (auto item : root) {
    JsonField field;
    if (const auto code = std::move(item).get(field); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    TP_RETURN_IF_ERROR(read_header_field(header, field));
  }
  TP_RETURN_IF_ERROR(expect_json_end(document));
  return header;
}

Result<StatedHeader> read_header_json(JsonParser& parser, std::string_view text,
                                      std::size_t padded_bytes) {
  // Newer versions of simdjson skip a byte order mark; the format has none.
  if (text.starts_with("\xef\xbb\xbf")) {
    return std::unexpected(
        broken_header("json", "not valid JSON: it begins with a byte order mark"));
  }
  JsonDocument document;
  const auto code = parser.iterate(text.data(), text.size(), padded_bytes).get(document);
  if (code != simdjson::SUCCESS) {
    if (!simdjson::validate_utf8(text.data(), text.size())) {
      return std::unexpected(broken_header("utf8", "the header is not UTF-8 text"));
    }
    return std::unexpected(json_error(code));
  }
  return read_root(document);
}

}  // namespace

Result<SafetensorsHeader> parse_padded_header(JsonParser& parser, std::string_view text,
                                              std::size_t padded_bytes,
                                              std::uint64_t file_size_bytes) {
  TP_ASSERT(padded_bytes >= text.size() + kJsonPaddingBytes);
  const std::uint64_t data_offset_bytes = kLengthFieldBytes + text.size();
  TP_ASSERT(file_size_bytes >= data_offset_bytes);
  Result<StatedHeader> header = read_header_json(parser, text, padded_bytes);
  if (!header) {
    return std::unexpected(std::move(header).error().with_context("broken safetensors header"));
  }
  TP_RETURN_IF_ERROR(check_names_differ(header->tensors));
  SafetensorsHeader result{.tensors = {}, .names = {}, .metadata = {}};
  result.has_metadata = header->metadata.has_value();
  result.metadata = std::move(header->metadata).value_or(decltype(result.metadata)());
  TP_ASSIGN_OR_RETURN(result.tensors, lay_out_tensors(std::move(header->tensors), result.names,
                                                      data_offset_bytes, file_size_bytes));
  return result;
}

}  // namespace trash_panda::format
