#include "shard_header.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/safetensors_header.h"

namespace trash_panda::format {

namespace {

std::string quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// In a layout the padding behind the last tensor of a coded extent may be of few digits, and of
/// more once the codes are made: its size is a number up to the largest page.
constexpr std::uint64_t kCodedExtentSlackBytes = 16;

/// Writes the members of a safetensors header for data that are handed over front to back.
class HeaderWriter {
 public:
  explicit HeaderWriter(std::string_view shard_name)
      : pad_stem_(shard_name.substr(0, shard_name.find('.'))) {}

  void add_metadata(const Manifest& manifest) {
    // "format": "pt" is what other programs of the field look for before they read a file.
    text_ += fmt::format(
        R"("__metadata__":{{"format":"pt","trash_panda":"one shard of a pack of version {}; )"
        R"(manifest.json says what is where; tensors named {}* are padding",)"
        R"("trash_panda.source_fingerprint":{}}})",
        kPackVersion, kPadPrefix, quote(manifest.source_fingerprint));
  }

  /// @param begin_bytes  From the start of the data; not before the end of the last tensor.
  void add_tensor(const PackedTensor& tensor, std::uint64_t begin_bytes) {
    pad_to(begin_bytes);
    if (tensor.coding == TensorCoding::kRaw) {
      add(quote(tensor.name), dtype_name(tensor.dtype), tensor.shape, tensor.stored_bytes);
    } else {
      add(quote(std::string(kCodedPrefix) + tensor.name), dtype_name(Dtype::kU8),
          {tensor.stored_bytes}, tensor.stored_bytes);
    }
  }

  void pad_to(std::uint64_t end_bytes) {
    TP_ASSERT(end_bytes >= end_bytes_);
    const std::uint64_t size_bytes = end_bytes - end_bytes_;
    if (size_bytes > 0) {
      add(quote(fmt::format("{}{}.{}", kPadPrefix, pad_stem_, pad_count_++)),
          dtype_name(Dtype::kU8), {size_bytes}, size_bytes);
    }
  }

  [[nodiscard]] std::string take() { return std::move(text_) + "}"; }

 private:
  void add(std::string_view quoted_name, std::string_view dtype, const Shape& shape,
           std::uint64_t size_bytes) {
    text_ += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted_name,
                         dtype, fmt::join(shape, ","), end_bytes_, end_bytes_ + size_bytes);
    end_bytes_ += size_bytes;
  }

  std::string pad_stem_;
  std::string text_ = "{";
  std::uint64_t end_bytes_ = 0;
  std::size_t pad_count_ = 0;
};

/// Whether a header says of a tensor what the manifest says.
bool is_as_listed(const TensorRecord& record, const PackedExtent& extent,
                  const PackedTensor& tensor) {
  const bool is_raw = tensor.coding == TensorCoding::kRaw;
  return record.dtype == (is_raw ? tensor.dtype : Dtype::kU8) &&
         record.shape == (is_raw ? tensor.shape : Shape{tensor.stored_bytes}) &&
         record.offset_bytes == extent.offset_bytes + tensor.stored_offset_bytes &&
         record.size_bytes == tensor.stored_bytes;
}

}  // namespace

Result<std::string> make_shard_header(const Manifest& manifest, std::uint32_t shard_index) {
  const PackedShard& shard = manifest.shards[shard_index];
  HeaderWriter writer(shard.name);
  writer.add_metadata(manifest);
  std::uint64_t coded_extent_count = 0;
  for (const PackedExtent& extent : manifest.extents) {
    if (extent.shard_index != shard_index) {
      continue;
    }
    const std::uint64_t begin_bytes = extent.offset_bytes - shard.header_bytes;
    for (const PackedTensor& tensor : extent.tensors) {
      writer.add_tensor(tensor, begin_bytes + tensor.stored_offset_bytes);
    }
    writer.pad_to(begin_bytes + extent.stored_bytes);
    coded_extent_count += extent.codec == kCodecRaw ? 0U : 1U;
  }
  std::string json = writer.take();
  const std::uint64_t slack_bytes =
      shard.header_bytes == 0 ? kCodedExtentSlackBytes * coded_extent_count : 0;
  TP_ASSIGN_OR_RETURN(std::uint64_t header_bytes,
                      round_up(kLengthFieldBytes + json.size() + slack_bytes, manifest.page_bytes));
  header_bytes = std::max(header_bytes, shard.header_bytes);
  const std::uint64_t json_bytes = header_bytes - kLengthFieldBytes;
  if (json_bytes > kHeaderBytesMax) {
    return std::unexpected(
        Error(ErrorCode::kUnsupported,
              fmt::format("the header of {} would take {} bytes, but safetensors allows {}",
                          printable(shard.name), json_bytes, kHeaderBytesMax))
            .with_reason("too_large")
            .with_hint("the names of its tensors are too long or too many for one file"));
  }
  json.resize(json_bytes, ' ');
  std::string header(kLengthFieldBytes, '\0');
  std::memcpy(header.data(), &json_bytes, kLengthFieldBytes);
  return header + json;
}

Result<void> check_shard_header(const Manifest& manifest, std::uint32_t shard_index,
                                std::string_view text) {
  TP_ASSIGN_OR_RETURN(const SafetensorsHeader header,
                      parse_header(text, manifest.shards[shard_index].size_bytes));
  std::unordered_map<std::string_view, const TensorRecord*> records;
  for (const TensorRecord& record : header.tensors) {
    if (!record.name.starts_with(kPadPrefix)) {
      records.emplace(record.name, &record);
    }
  }
  std::size_t listed_count = 0;
  for (const PackedExtent& extent : manifest.extents) {
    if (extent.shard_index != shard_index) {
      continue;
    }
    for (const PackedTensor& tensor : extent.tensors) {
      const auto found = tensor.coding == TensorCoding::kRaw
                             ? records.find(tensor.name)
                             : records.find(std::string(kCodedPrefix) + tensor.name);
      if (found == records.end() || !is_as_listed(*found->second, extent, tensor)) {
        return std::unexpected(Error(
            ErrorCode::kCorrupt,
            fmt::format("it does not list \"{}\" as the manifest does", printable(tensor.name))));
      }
      ++listed_count;
    }
  }
  // Names are unique in both.
  return listed_count == records.size()
             ? Result<void>()
             : std::unexpected(
                   Error(ErrorCode::kCorrupt, fmt::format("it lists {} tensors, the manifest {}",
                                                          records.size(), listed_count)));
}

}  // namespace trash_panda::format
