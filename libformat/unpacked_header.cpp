#include "unpacked_header.h"

#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trash_panda/format/safetensors_header.h"

#include "foreign_json.h"

namespace trash_panda::format {

namespace {

using IndexJson = nlohmann::ordered_json;

std::string json_text(const IndexJson& value, int indent) {
  return value.dump(indent, ' ', false, IndexJson::error_handler_t::replace);
}

}  // namespace

std::string make_unpacked_header(const UnpackedFile& file) {
  std::string json = "{";
  if (file.metadata) {
    json += fmt::format("\"__metadata__\":{},", json_text(IndexJson(*file.metadata), -1));
  }
  std::uint64_t at_bytes = 0;
  for (const UnpackedTensor& tensor : file.tensors) {
    json += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)",
                        json_text(IndexJson(tensor.name), -1), dtype_name(tensor.dtype),
                        fmt::join(tensor.shape, ","), at_bytes, at_bytes + tensor.size_bytes);
    at_bytes += tensor.size_bytes;
  }
  if (json.ends_with(',')) {
    json.pop_back();
  }
  json += '}';
  constexpr std::size_t kAlignment = 8;
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const std::uint64_t json_bytes = json.size();
  std::string header(kLengthFieldBytes, '\0');
  std::memcpy(header.data(), &json_bytes, kLengthFieldBytes);
  return header + json;
}

bool is_unpacked_index_name(std::string_view name) {
  // That of torch files would be looked for beside such.
  return name.contains(".index.") && name.ends_with(".json") && !name.contains(".bin.index.") &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

std::string make_unpacked_index(const UnpackLayout& layout) {
  std::map<std::string, std::string> weight_map;
  for (const UnpackedFile& file : layout.files) {
    for (const UnpackedTensor& tensor : file.tensors) {
      weight_map.emplace(tensor.name, file.name);
    }
  }
  auto index = parse_foreign_json<IndexJson>(layout.index->members);
  TP_ASSERT(index.is_object());
  index["weight_map"] = weight_map;
  return json_text(index, 2) + "\n";
}

}  // namespace trash_panda::format
