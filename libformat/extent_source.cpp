#include "extent_source.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/chunk_code.h"

#include "weight_rounding.h"

namespace trash_panda::format {

namespace {

/// Runs from this size on are read past the page cache; smaller ones buffered, where the system's
/// read-ahead makes up for their number.
constexpr std::uint64_t kReadDirectBytes = 1'048'576;

std::uint64_t end_of(const PackedTensor& tensor) {
  return tensor.offset_bytes + tensor.size_bytes;
}

}  // namespace

ExtentSource::ExtentSource(const Checkpoint& checkpoint, const WeightTable& weights,
                           const PackLayout& layout, const Manifest& manifest, DirectUse direct)
    : checkpoint_(checkpoint), weights_(weights), manifest_(manifest), direct_(direct) {
  for (const ExtentLayout& extent : layout.extents) {
    std::vector<Origin>& origins = origins_.emplace_back();
    for (const std::size_t weight_index : extent.weights) {
      const auto found = layout.conversions.find(weight_index);
      const WeightConversion* conversion =
          found == layout.conversions.end() ? nullptr : &found->second;
      origins.push_back(
          {.weight_index = weight_index, .is_scale = false, .conversion = conversion});
      if (weights.weights[weight_index].scale || (conversion != nullptr && conversion->scale)) {
        origins.push_back(
            {.weight_index = weight_index, .is_scale = true, .conversion = conversion});
      }
    }
  }
}

void ExtentSource::add_chunks(std::size_t extent_index, std::vector<PackChunk>& chunks) const {
  const PackedExtent& extent = manifest_.extents[extent_index];
  const std::size_t first_chunk = chunks.size();
  const auto add_span = [&](PackChunk span) {
    span.extent_index = extent_index;
    span.begins_span = true;
    const std::uint64_t span_end_bytes = span.end_bytes;
    // One at least: tensors without elements have their places, too.
    while (!span.ends_span) {
      span.end_bytes =
          span.begin_bytes + std::min(span_end_bytes - span.begin_bytes, PackChunk::kBytesMax);
      span.ends_span = span.end_bytes == span_end_bytes;
      chunks.push_back(span);
      span.begin_bytes = span.end_bytes;
      span.begins_span = false;
    }
  };
  const std::vector<PackedTensor>& tensors = extent.tensors;
  if (extent.codec == kCodecRaw) {
    add_span({.begin_bytes = 0, .end_bytes = extent.raw_bytes, .tensor_count = tensors.size()});
  } else {
    for (std::size_t t = 0; t < tensors.size();) {
      const bool is_coded = tensors[t].coding != TensorCoding::kRaw;
      std::size_t end = t + 1;
      while (!is_coded && end < tensors.size() && tensors[end].coding == TensorCoding::kRaw) {
        ++end;
      }
      add_span({.begin_bytes = tensors[t].offset_bytes,
                .end_bytes = end_of(tensors[end - 1]),
                .first_tensor = t,
                .tensor_count = end - t,
                .is_coded = is_coded});
      t = end;
    }
  }
  chunks[first_chunk].begins_extent = true;
  chunks.back().ends_extent = true;
}

std::size_t ExtentSource::first_tensor(const PackChunk& chunk) const {
  const std::vector<PackedTensor>& tensors = manifest_.extents[chunk.extent_index].tensors;
  const auto first = std::ranges::partition_point(
      tensors, [&](const PackedTensor& tensor) { return end_of(tensor) <= chunk.begin_bytes; });
  return static_cast<std::size_t>(first - tensors.begin());
}

Result<std::span<const std::byte>> ExtentSource::fill(const PackChunk& chunk,
                                                      std::span<std::byte> buffer) const {
  TP_ASSERT(buffer.size() >= PackChunk::kBufferBytes);
  if (chunk.is_coded) {
    return encode(chunk, buffer);
  }
  const std::vector<PackedTensor>& tensors = manifest_.extents[chunk.extent_index].tensors;
  const std::span<std::byte> target = buffer.first(chunk.end_bytes - chunk.begin_bytes);
  const std::span<std::byte> scratch = buffer.subspan(PackChunk::kCodedBytesMax);
  std::uint64_t made_bytes = chunk.begin_bytes;
  const auto fill_zeros_to = [&](std::uint64_t end_bytes) {
    std::ranges::fill(target.subspan(made_bytes - chunk.begin_bytes, end_bytes - made_bytes),
                      std::byte{0});
  };
  for (std::size_t t = first_tensor(chunk);
       t < tensors.size() && tensors[t].offset_bytes < chunk.end_bytes; ++t) {
    const std::uint64_t begin_bytes = std::max(tensors[t].offset_bytes, chunk.begin_bytes);
    const std::uint64_t end_bytes = std::min(end_of(tensors[t]), chunk.end_bytes);
    if (begin_bytes >= end_bytes) {
      continue;
    }
    fill_zeros_to(begin_bytes);
    TP_RETURN_IF_ERROR(make_part(
        origins_[chunk.extent_index][t], begin_bytes - tensors[t].offset_bytes,
        target.subspan(begin_bytes - chunk.begin_bytes, end_bytes - begin_bytes), scratch));
    made_bytes = end_bytes;
  }
  fill_zeros_to(chunk.end_bytes);
  return target;
}

Result<std::span<const std::byte>> ExtentSource::encode(const PackChunk& chunk,
                                                        std::span<std::byte> buffer) const {
  const PackedTensor& tensor = manifest_.extents[chunk.extent_index].tensors[chunk.first_tensor];
  const Origin& origin = origins_[chunk.extent_index][chunk.first_tensor];
  const std::uint64_t offset_bytes = chunk.begin_bytes - tensor.offset_bytes;
  const std::uint64_t size_bytes = chunk.end_bytes - chunk.begin_bytes;
  const std::span<std::byte> coded = buffer.first(PackChunk::kCodedBytesMax);
  const std::span<std::byte> rest = buffer.subspan(PackChunk::kCodedBytesMax);
  std::span<const std::byte> raw;
  if (origin.conversion != nullptr) {
    raw = rest.first(size_bytes);
    TP_RETURN_IF_ERROR(convert_part(origin, offset_bytes, rest.first(size_bytes), coded));
  } else {
    TP_ASSIGN_OR_RETURN(raw, read_part(origin, offset_bytes, size_bytes, rest));
  }
  TP_ASSIGN_OR_RETURN(const std::uint64_t coded_bytes,
                      encode_chunks(tensor.coding, tensor.dtype, raw, coded));
  return coded.first(coded_bytes);
}

/// Makes a run of a packed tensor's raw bytes.
Result<void> ExtentSource::make_part(const Origin& origin, std::uint64_t offset_bytes,
                                     std::span<std::byte> target,
                                     std::span<std::byte> scratch) const {
  if (origin.conversion == nullptr) {
    TP_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes,
                        read_part(origin, offset_bytes, target.size(), scratch));
    std::memcpy(target.data(), bytes.data(), bytes.size());
    return {};
  }
  if (origin.is_scale) {
    const float scale = *origin.conversion->scale;
    std::memcpy(target.data(), std::as_bytes(std::span(&scale, 1)).data() + offset_bytes,
                target.size());
    return {};
  }
  return convert_part(origin, offset_bytes, target, scratch);
}

/// Reads as much of the source at a time as fits `scratch`, and converts it.
Result<void> ExtentSource::convert_part(const Origin& origin, std::uint64_t offset_bytes,
                                        std::span<std::byte> target,
                                        std::span<std::byte> scratch) const {
  const Weight& weight = weights_.weights[origin.weight_index];
  const std::uint64_t source_width = dtype_bits(weight.dtype) / 8;
  const std::uint64_t width = dtype_bits(origin.conversion->dtype) / 8;
  const std::uint64_t elements_max = PackChunk::kBytesMax / source_width;
  std::uint64_t first = offset_bytes / width;
  while (!target.empty()) {
    const std::uint64_t count = std::min<std::uint64_t>(target.size() / width, elements_max);
    TP_ASSIGN_OR_RETURN(
        const std::span<const std::byte> bytes,
        read_part({.weight_index = origin.weight_index, .is_scale = false, .conversion = nullptr},
                  first * source_width, count * source_width, scratch));
    Result<void> converted =
        convert_weight(*origin.conversion, weight.dtype, bytes, target.first(count * width));
    if (!converted) {
      return std::unexpected(std::move(converted).error().with_context(printable(weight.name)));
    }
    first += count;
    target = target.subspan(count * width);
  }
  return {};
}

/// Reads a run of a tensor's bytes as the source has them, scales as packs do. @return Where in
/// `scratch` they are.
Result<std::span<const std::byte>> ExtentSource::read_part(const Origin& origin,
                                                           std::uint64_t offset_bytes,
                                                           std::uint64_t size_bytes,
                                                           std::span<std::byte> scratch) const {
  const Weight& weight = weights_.weights[origin.weight_index];
  const std::span<std::byte> target = scratch.first(size_bytes);
  if (origin.is_scale) {
    TP_RETURN_IF_ERROR(read_scale_bytes(checkpoint_, *weight.scale, offset_bytes, target));
    return target;
  }
  const TensorRecord& record = checkpoint_.tensors()[weight.tensor_index];
  // With strides its bytes are no run of the file.
  if (!record.strides.empty() || size_bytes < kReadDirectBytes || direct_ == DirectUse::kNever) {
    TP_RETURN_IF_ERROR(checkpoint_.read_tensor_part(weight.tensor_index, offset_bytes, target));
    return target;
  }
  // Opened each time: a model of hundreds of files must not use up the process's descriptors.
  TP_ASSIGN_OR_RETURN(const BulkReader reader,
                      BulkReader::open(checkpoint_.files()[record.file_index].path, direct_));
  return reader.read(record.offset_bytes + offset_bytes, size_bytes, scratch);
}

}  // namespace trash_panda::format
