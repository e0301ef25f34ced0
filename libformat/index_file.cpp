#include "index_file.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/format/name_index.h"

#include "file_sniff.h"
#include "header_layout.h"
#include "json_walk.h"

namespace trash_panda::format {

namespace {

Error broken_index(std::string_view reason, std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message)).with_reason(reason);
}

/// Bytes of a line of real indexes; those with shorter ones have room made again.
constexpr std::size_t kEntryBytesTypical = 90;

/// Entries that a cursor looks at: writers that sort tensors by dtype pass over those of others.
constexpr std::uint32_t kLookahead = 4;

/// Collects the map with shard names numbered by first appearance.
struct WeightMap {
  IndexShards kind = IndexShards::kSafetensors;
  std::vector<IndexEntry> entries;
  std::map<std::string, std::uint32_t, std::less<>> shard_numbers;
  std::string_view last_shard = {};  ///< Of the entry before: most often that of the next, too.
};

bool is_unsafe(std::string_view shard) {
  if (shard.empty() || shard.front() == '/' || shard.front() == '\\' ||
      shard.find('\0') != std::string_view::npos) {
    return true;
  }
  // Indexes written on Windows may hold backslashes; a drive letter is absolute there.
  if (shard.size() > 1 && shard[1] == ':') {
    return true;
  }
  std::size_t begin = 0;
  while (begin <= shard.size()) {
    const std::size_t end = std::min(shard.find_first_of("/\\", begin), shard.size());
    if (shard.substr(begin, end - begin) == "..") {
      return true;
    }
    begin = end + 1;
  }
  return false;
}

bool is_torch_name(std::string_view shard) {
  constexpr std::array<std::string_view, 4> kEndings = {".bin", ".pt", ".pth", ".ckpt"};
  return std::ranges::any_of(kEndings,
                             [shard](std::string_view ending) { return shard.ends_with(ending); });
}

/// Endings of formats that a safetensors index can't mean; shards without one are opened and seen.
bool is_other_name(std::string_view shard) {
  return is_torch_name(shard) || shard.ends_with(".gguf") || shard.ends_with(".h5");
}

Result<void> check_shard_name(std::string_view shard, IndexShards kind) {
  if (is_unsafe(shard)) {
    return std::unexpected(
        broken_index("unsafe_path",
                     fmt::format("the index names the shard {}, which is outside its folder",
                                 quote_name(shard)))
            .with_hint("do not use this checkpoint unless you know why it does that"));
  }
  if (kind == IndexShards::kTorch ? is_torch_name(shard) : !is_other_name(shard)) {
    return {};
  }
  const bool wants_torch = kind == IndexShards::kTorch;
  return std::unexpected(
      Error(ErrorCode::kUnsupported,
            fmt::format("the index names the shard {}, which is no {} file", quote_name(shard),
                        wants_torch ? "torch" : "safetensors"))
          .with_reason("unsupported_format")
          .with_hint("get or make the safetensors version of this checkpoint"));
}

Result<void> read_weight(WeightMap& map, JsonField& field) {
  TP_ASSIGN_OR_RETURN(const std::string_view key, read_json_key(field));
  TP_ASSIGN_OR_RETURN(const JsonType type, json_type_of(field.value()));
  if (type != JsonType::string) {
    return std::unexpected(
        broken_index("index", fmt::format("weight_map gives {} for tensor {}, not "
                                          "the name of a file",
                                          json_type_name(type), quote_name(key))));
  }
  TP_ASSIGN_OR_RETURN(const std::string_view shard, read_json_string(field.value()));
  if (shard == map.last_shard && !map.entries.empty()) {
    map.entries.push_back({.tensor = key, .shard_index = map.entries.back().shard_index});
    return {};
  }
  auto place = map.shard_numbers.find(shard);
  if (place == map.shard_numbers.end()) {
    TP_RETURN_IF_ERROR(check_shard_name(shard, map.kind));
    const auto number = static_cast<std::uint32_t>(map.shard_numbers.size());
    place = map.shard_numbers.emplace(std::string(shard), number).first;
  }
  map.entries.push_back({.tensor = key, .shard_index = place->second});
  map.last_shard = place->first;
  return {};
}

template <class Function>
Result<void> for_each_field(JsonObject object, Function&& function) {
  for (auto item : object) {
    JsonField field;
    if (const auto code = std::move(item).get(field); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    TP_RETURN_IF_ERROR(function(field));
  }
  return {};
}

Result<JsonObject> open_object(JsonValue& value) {
  JsonObject object;
  if (const auto code = value.get_object().get(object); code != simdjson::SUCCESS) {
    return std::unexpected(json_error(code));
  }
  return object;
}

Result<void> read_weight_map(WeightMap& map, JsonValue& value) {
  TP_ASSIGN_OR_RETURN(const JsonType type, json_type_of(value));
  if (type != JsonType::object) {
    return std::unexpected(broken_index(
        "index", fmt::format("weight_map is {}, not an object", json_type_name(type))));
  }
  TP_ASSIGN_OR_RETURN(const JsonObject object, open_object(value));
  return for_each_field(object, [&map](JsonField& field) { return read_weight(map, field); });
}

/// total_size is a remark that nothing depends on: any number is taken, anything else passed over.
Result<void> read_index_metadata(std::optional<double>& total_size, JsonValue& value) {
  TP_ASSIGN_OR_RETURN(const JsonType type, json_type_of(value));
  if (type != JsonType::object) {
    return walk_json_value(value, 1);
  }
  TP_ASSIGN_OR_RETURN(const JsonObject object, open_object(value));
  return for_each_field(object, [&total_size](JsonField& field) -> Result<void> {
    TP_ASSIGN_OR_RETURN(const std::string_view key, read_json_key(field));
    TP_ASSIGN_OR_RETURN(const JsonType field_type, json_type_of(field.value()));
    if (key != "total_size" || field_type != JsonType::number) {
      return walk_json_value(field.value(), 2);
    }
    double number = 0;
    if (const auto code = field.value().get_double().get(number); code != simdjson::SUCCESS) {
      return std::unexpected(json_error(code));
    }
    total_size = number;
    return {};
  });
}

/// A member of the index, and where its key begins.
struct IndexMember {
  const char* begin;
  bool is_map;
};

struct StatedIndex {
  WeightMap map;
  std::optional<double> total_size;
  bool has_map = false;
  std::vector<IndexMember> members;
};

Result<void> read_index_field(StatedIndex& index, JsonField& field) {
  const char* const begin = field.key().raw() - 1;
  TP_ASSIGN_OR_RETURN(const std::string_view key, read_json_key(field));
  index.members.push_back({.begin = begin, .is_map = key == "weight_map"});
  if (key == "weight_map") {
    if (std::exchange(index.has_map, true)) {
      return std::unexpected(broken_index("index_duplicate", "weight_map is twice in the index"));
    }
    return read_weight_map(index.map, field.value());
  }
  if (key == "metadata") {
    return read_index_metadata(index.total_size, field.value());
  }
  return walk_json_value(field.value(), 1);
}

/// @param text  kJsonPaddingBytes more of it are readable.
Result<StatedIndex> read_index_json(JsonParser& parser, std::string_view text, IndexShards kind) {
  JsonDocument document;
  if (const auto code =
          parser.iterate(text.data(), text.size(), text.size() + kJsonPaddingBytes).get(document);
      code != simdjson::SUCCESS) {
    return std::unexpected(json_error(code));
  }
  JsonObject root;
  if (const auto code = document.get_object().get(root); code != simdjson::SUCCESS) {
    return std::unexpected(code == simdjson::INCORRECT_TYPE
                               ? broken_index("index", "it is not a JSON object")
                               : json_error(code));
  }
  StatedIndex index;
  index.map.kind = kind;
  index.map.entries.reserve(text.size() / kEntryBytesTypical);
  TP_RETURN_IF_ERROR(
      for_each_field(root, [&index](JsonField& field) { return read_index_field(index, field); }));
  TP_RETURN_IF_ERROR(expect_json_end(document));
  if (!index.has_map) {
    return std::unexpected(broken_index("index", "it has no weight_map"));
  }
  return index;
}

/// Takes what ends `text`, and white space around it, off.
std::string_view without_end(std::string_view text, char end) {
  constexpr std::string_view kSpace = " \t\r\n";
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  TP_ASSERT(text.ends_with(end));
  text.remove_suffix(1);
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

/// The members that are not the map, as an object. The text is known to be JSON.
std::string join_other_members(std::string_view text, const std::vector<IndexMember>& members) {
  std::string object = "{";
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].is_map) {
      continue;
    }
    const bool is_last = i + 1 == members.size();
    const char* const end = is_last ? text.data() + text.size() : members[i + 1].begin;
    object += object.size() == 1 ? "" : ",";
    object += without_end(std::string_view(members[i].begin, end), is_last ? '}' : ',');
  }
  object += '}';
  std::string small(object.size() + kJsonPaddingBytes, '\0');
  std::size_t small_bytes = 0;
  const auto code = simdjson::minify(object.data(), object.size(), small.data(), small_bytes);
  TP_ASSERT(code == simdjson::SUCCESS);
  small.resize(small_bytes);
  return small;
}

/// To the user the index is what is broken_index; that it is its JSON is in the message.
Error as_index_error(Error error, std::string_view text) {
  if (error.reason() != "json" && error.reason() != "schema" && error.reason() != "index") {
    return error;
  }
  const auto bytes = std::as_bytes(std::span(text));
  const auto format = sniff_foreign_format(bytes.first(std::min<std::size_t>(512, bytes.size())));
  if (format && !text.starts_with('{')) {
    return std::move(error)
        .with_reason("index")
        .with_context(fmt::format("this is {}", format->name))
        .with_hint(std::string(format->hint));
  }
  return std::move(error).with_reason("index").with_context("broken index");
}

}  // namespace

Result<IndexFile> IndexFile::parse(AlignedBuffer buffer, std::uint64_t text_bytes,
                                   IndexShards shards) {
  TP_ASSERT(buffer.size_bytes() >= text_bytes + kJsonPaddingBytes);
  IndexFile index;
  index.text_ = std::move(buffer);
  const std::string_view text(reinterpret_cast<const char*>(index.text_.data()), text_bytes);
  JsonParser parser;
  Result<StatedIndex> stated = read_index_json(parser, text, shards);
  if (!stated) {
    return std::unexpected(as_index_error(std::move(stated).error(), text));
  }
  index.entries_ = std::move(stated->map.entries);
  index.total_size_ = stated->total_size;
  index.other_members_ = join_other_members(text, stated->members);
  const std::less<const char*> before;
  for (IndexEntry& entry : index.entries_) {
    const char* name = entry.tensor.data();
    if (before(name, text.data()) || !before(name, text.data() + text.size())) {
      // Unescaped in the parser's memory, which goes.
      entry.tensor = index.unescaped_.emplace_back(entry.tensor);
    }
  }
  // Shards in the order of their names, so that the order of a file's lines decides nothing.
  std::vector<std::uint32_t> new_number(stated->map.shard_numbers.size());
  for (const auto& [name, number] : stated->map.shard_numbers) {
    new_number[number] = static_cast<std::uint32_t>(index.shards_.size());
    index.shards_.push_back(name);
  }
  for (IndexEntry& entry : index.entries_) {
    entry.shard_index = new_number[entry.shard_index];
  }
  const auto name_at = [&](std::size_t i) { return index.entries_[i].tensor; };
  index.names_ = NameIndex(index.entries_.size(), name_at);
  if (const auto twice = index.names_.find_twice(name_at)) {
    return std::unexpected(broken_index(
        "index_duplicate",
        fmt::format("weight_map lists tensor {} twice", quote_name(name_at(twice->first)))));
  }
  return index;
}

std::optional<std::size_t> IndexFile::find(std::string_view tensor) const {
  return names_.find(tensor, [this](std::size_t i) { return entries_[i].tensor; });
}

IndexCursor::IndexCursor(const IndexFile& index)
    : index_(index),
      order_(index.entries().size()),
      next_(index.shards().size()),
      ends_(index.shards().size()) {
  // A counting sort: each shard's end is first the count of its entries, then where they begin, and
  // moves on as they are placed.
  for (const IndexEntry& entry : index.entries()) {
    ++ends_[entry.shard_index];
  }
  std::exclusive_scan(ends_.begin(), ends_.end(), ends_.begin(), 0U);
  next_ = ends_;
  for (std::uint32_t i = 0; i < order_.size(); ++i) {
    order_[ends_[index.entries()[i].shard_index]++] = i;
  }
}

std::optional<std::size_t> IndexCursor::find(std::uint32_t shard_index, std::string_view tensor) {
  std::uint32_t& next = next_[shard_index];
  const std::uint32_t end = ends_[shard_index];
  const std::uint32_t near = std::min(end, next + kLookahead);
  for (std::uint32_t at = next; at < near; ++at) {
    if (index_.entries()[order_[at]].tensor == tensor) {
      next = at + 1;
      return order_[at];
    }
  }
  const std::optional<std::size_t> entry = index_.find(tensor);
  if (!entry || index_.entries()[*entry].shard_index != shard_index) {
    return std::nullopt;
  }
  const auto begin = shard_index == 0 ? order_.begin() : order_.begin() + ends_[shard_index - 1];
  const auto found = std::lower_bound(begin, order_.begin() + end, *entry);
  next = static_cast<std::uint32_t>(found - order_.begin()) + 1;
  return entry;
}

}  // namespace trash_panda::format
