// The start of a safetensors file, its data left out or not.

#include <algorithm>
#include <set>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "trash_panda/format/safetensors_header.h"

#include "fuzz_target.h"
#include "header_parser.h"

namespace trash_panda::fuzz {

namespace {

using format::SafetensorsHeader;
using format::TensorRecord;
using Json = nlohmann::json;

constexpr std::string_view kMetadata = "__metadata__";

/// The size is told by multiplying nothing: it is divided by each dimension until one element is
/// left.
void check_size(const TensorRecord& tensor) {
  if (std::ranges::find(tensor.shape, 0U) != tensor.shape.end()) {
    TP_ASSERT(tensor.size_bytes == 0);
    return;
  }
  std::uint64_t bits = tensor.size_bytes * 8;
  TP_ASSERT(bits / 8 == tensor.size_bytes);
  for (const std::uint64_t dimension : tensor.shape) {
    TP_ASSERT(bits % dimension == 0);
    bits /= dimension;
  }
  TP_ASSERT(bits == format::dtype_bits(tensor.dtype));
}

/// Tensors lie one behind the other from the end of the header to the end of the file.
void check_places(const SafetensorsHeader& header, std::uint64_t header_bytes,
                  std::uint64_t file_size_bytes) {
  std::uint64_t end_bytes = format::kLengthFieldBytes + header_bytes;
  std::set<std::string_view> names;
  for (const TensorRecord& tensor : header.tensors) {
    TP_ASSERT(tensor.offset_bytes == end_bytes);
    TP_ASSERT(tensor.size_bytes <= file_size_bytes - end_bytes);
    TP_ASSERT(names.emplace(tensor.name).second && tensor.name != kMetadata);
    check_size(tensor);
    end_bytes += tensor.size_bytes;
  }
  TP_ASSERT(end_bytes == file_size_bytes);
}

/// An independent strict parser reads the same.
void check_against_json(const SafetensorsHeader& header, std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  TP_ASSERT(json.is_object());
  const auto metadata = json.find(kMetadata);
  const std::size_t metadata_count =
      metadata == json.end() || metadata->is_null() ? 0 : metadata->size();
  TP_ASSERT(json.size() == header.tensors.size() + (metadata == json.end() ? 0 : 1));
  TP_ASSERT(metadata_count == header.metadata.size());
  for (const auto& [key, value] : header.metadata) {
    TP_ASSERT(metadata->at(key) == value);
  }
  for (const TensorRecord& tensor : header.tensors) {
    const Json& entry = json.at(std::string(tensor.name));
    const bool is_list = entry.is_array();
    TP_ASSERT((is_list ? entry.at(0) : entry.at("dtype")) == format::dtype_name(tensor.dtype));
    TP_ASSERT((is_list ? entry.at(1) : entry.at("shape")) == Json(tensor.shape));
    const Json& offsets = is_list ? entry.at(2) : entry.at("data_offsets");
    TP_ASSERT(offsets.at(1).get<std::uint64_t>() - offsets.at(0).get<std::uint64_t>() ==
              tensor.size_bytes);
  }
}

bool are_equal(const SafetensorsHeader& a, const SafetensorsHeader& b) {
  const auto same = [](const TensorRecord& x, const TensorRecord& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape &&
           x.size_bytes == y.size_bytes;
  };
  return a.metadata == b.metadata && std::ranges::equal(a.tensors, b.tensors, same);
}

/// What was read, written by another library, reads as the same.
void check_round_trip(const SafetensorsHeader& header) {
  // Empty tensors of one place stay in the order of the header.
  auto json = nlohmann::ordered_json::object();
  json[kMetadata] = header.metadata;
  std::uint64_t end_bytes = 0;
  for (const TensorRecord& tensor : header.tensors) {
    json[std::string(tensor.name)] = {{"dtype", format::dtype_name(tensor.dtype)},
                                      {"shape", tensor.shape},
                                      {"data_offsets", {end_bytes, end_bytes + tensor.size_bytes}}};
    end_bytes += tensor.size_bytes;
  }
  const std::string text = json.dump();
  const Result<SafetensorsHeader> again =
      format::parse_header(text, format::kLengthFieldBytes + text.size() + end_bytes);
  TP_ASSERT(again && are_equal(header, *again));
}

/// A reader of many headers keeps its parser, and what lies behind a header is tensor data.
void check_reused_parser(const Result<SafetensorsHeader>& expected, std::string_view text,
                         std::uint64_t file_size_bytes) {
  static format::JsonParser parser;
  std::string padded(text);
  while (padded.size() < text.size() + format::kJsonPaddingBytes) {
    padded += "\"]}\\0,";
  }
  const Result<SafetensorsHeader> found = format::parse_padded_header(
      parser, std::string_view(padded).substr(0, text.size()), padded.size(), file_size_bytes);
  TP_ASSERT(found.has_value() == expected.has_value());
  TP_ASSERT(found ? are_equal(*found, *expected)
                  : found.error().to_string() == expected.error().to_string());
}

bool check_header(std::string_view text, std::uint64_t file_size_bytes) {
  const Result<SafetensorsHeader> header = format::parse_header(text, file_size_bytes);
  if (file_size_bytes >= format::kLengthFieldBytes + text.size()) {
    check_reused_parser(header, text, file_size_bytes);
  }
  if (!header) {
    check_refusal(header.error());
    return false;
  }
  check_places(*header, text.size(), file_size_bytes);
  check_against_json(*header, text);
  check_round_trip(*header);
  return true;
}

bool fuzz_safetensors_header(std::string_view input) {
  const auto head = std::as_bytes(std::span(input.substr(0, 512)));
  const Result<std::uint64_t> header_bytes = format::read_header_size(head, input.size());
  bool is_taken = false;
  if (header_bytes) {
    TP_ASSERT(*header_bytes <= input.size() - format::kLengthFieldBytes);
    is_taken = check_header(input.substr(format::kLengthFieldBytes, *header_bytes), input.size());
  } else {
    check_refusal(header_bytes.error());
  }
  const std::string_view text =
      input.substr(std::min<std::size_t>(input.size(), format::kLengthFieldBytes));
  std::uint64_t file_size_bytes = format::kLengthFieldBytes + text.size();
  if (!__builtin_add_overflow(file_size_bytes, largest_number(text), &file_size_bytes)) {
    is_taken = check_header(text, file_size_bytes) || is_taken;
  }
  return is_taken;
}

[[maybe_unused]] const bool kHeaderAdded =
    add_target("safetensors_header", fuzz_safetensors_header);

}  // namespace

}  // namespace trash_panda::fuzz
