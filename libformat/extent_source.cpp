#include "extent_source.h"

#include <algorithm>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "bulk_reader.h"

namespace trash_panda::format {

namespace {

/// Tensors from this size on are read apart, past the page cache; smaller ones together and
/// buffered, where the system's read-ahead makes up for their number.
constexpr std::uint64_t kReadApartBytes = 1'048'576;

std::uint64_t end_of(const PackedTensor& tensor) {
  return tensor.offset_bytes + tensor.size_bytes;
}

/// Collects the chunks of one extent, front to back.
class ChunkCutter {
 public:
  ChunkCutter(std::size_t extent_index, std::vector<PackChunk>& chunks)
      : extent_index_(extent_index), chunks_(chunks) {}

  [[nodiscard]] std::uint64_t begin_bytes() const { return begin_bytes_; }

  /// Ends the current chunk at `end_bytes`; in several pieces where it would be too long.
  void cut_at(std::uint64_t end_bytes) {
    while (begin_bytes_ < end_bytes) {
      const std::uint64_t next_bytes =
          begin_bytes_ + std::min(end_bytes - begin_bytes_, PackChunk::kBytesMax);
      chunks_.push_back(
          {.extent_index = extent_index_, .begin_bytes = begin_bytes_, .end_bytes = next_bytes});
      begin_bytes_ = next_bytes;
    }
  }

 private:
  std::size_t extent_index_;
  std::vector<PackChunk>& chunks_;
  std::uint64_t begin_bytes_ = 0;
};

}  // namespace

ExtentSource::ExtentSource(const Checkpoint& checkpoint, const WeightTable& weights,
                           const PackLayout& layout, const Manifest& manifest)
    : checkpoint_(checkpoint), weights_(weights), manifest_(manifest) {
  for (const ExtentLayout& extent : layout.extents) {
    std::vector<Origin>& origins = origins_.emplace_back();
    for (const std::size_t weight_index : extent.weights) {
      origins.push_back({.weight_index = weight_index, .is_scale = false});
      if (weights.weights[weight_index].scale) {
        origins.push_back({.weight_index = weight_index, .is_scale = true});
      }
    }
  }
}

bool ExtentSource::is_read_apart(std::size_t extent_index, std::size_t tensor_index) const {
  const Origin& origin = origins_[extent_index][tensor_index];
  if (origin.is_scale) {
    return false;
  }
  const std::size_t stored = weights_.weights[origin.weight_index].tensor_index;
  // With strides its bytes are no run of the file.
  return checkpoint_.tensors()[stored].strides.empty() &&
         manifest_.extents[extent_index].tensors[tensor_index].size_bytes >= kReadApartBytes;
}

std::vector<PackChunk> ExtentSource::chunks(std::uint32_t shard_index) const {
  std::vector<PackChunk> chunks;
  for (std::size_t e = 0; e < manifest_.extents.size(); ++e) {
    const PackedExtent& extent = manifest_.extents[e];
    if (extent.shard_index != shard_index) {
      continue;
    }
    ChunkCutter cutter(e, chunks);
    for (std::size_t t = 0; t < extent.tensors.size(); ++t) {
      const PackedTensor& tensor = extent.tensors[t];
      const bool is_apart = is_read_apart(e, t);
      if (is_apart || end_of(tensor) - cutter.begin_bytes() > PackChunk::kBytesMax) {
        cutter.cut_at(tensor.offset_bytes);
      }
      if (is_apart) {
        cutter.cut_at(end_of(tensor));
      }
    }
    cutter.cut_at(extent.stored_bytes);
  }
  return chunks;
}

std::size_t ExtentSource::first_tensor(const PackChunk& chunk) const {
  const std::vector<PackedTensor>& tensors = manifest_.extents[chunk.extent_index].tensors;
  const auto first = std::ranges::partition_point(
      tensors, [&](const PackedTensor& tensor) { return end_of(tensor) <= chunk.begin_bytes; });
  return static_cast<std::size_t>(first - tensors.begin());
}

Result<std::span<const std::byte>> ExtentSource::fill(const PackChunk& chunk,
                                                      std::span<std::byte> buffer) const {
  const std::vector<PackedTensor>& tensors = manifest_.extents[chunk.extent_index].tensors;
  const std::uint64_t size_bytes = chunk.end_bytes - chunk.begin_bytes;
  const std::size_t first = first_tensor(chunk);
  if (first < tensors.size() && is_read_apart(chunk.extent_index, first) &&
      tensors[first].offset_bytes <= chunk.begin_bytes &&
      chunk.end_bytes <= end_of(tensors[first])) {
    const std::size_t weight_index = origins_[chunk.extent_index][first].weight_index;
    const TensorRecord& record = checkpoint_.tensors()[weights_.weights[weight_index].tensor_index];
    // Opened each time: a model of hundreds of files must not use up the process's descriptors.
    TP_ASSIGN_OR_RETURN(const BulkReader reader,
                        BulkReader::open(checkpoint_.files()[record.file_index].path));
    return reader.read(record.offset_bytes + (chunk.begin_bytes - tensors[first].offset_bytes),
                       size_bytes, buffer);
  }
  const std::span<std::byte> target = buffer.first(size_bytes);
  std::ranges::fill(target, std::byte{0});
  for (std::size_t t = first; t < tensors.size() && tensors[t].offset_bytes < chunk.end_bytes;
       ++t) {
    const std::uint64_t begin_bytes = std::max(tensors[t].offset_bytes, chunk.begin_bytes);
    const std::uint64_t end_bytes = std::min(end_of(tensors[t]), chunk.end_bytes);
    if (begin_bytes < end_bytes) {
      TP_RETURN_IF_ERROR(
          read_part(chunk.extent_index, t, begin_bytes - tensors[t].offset_bytes,
                    target.subspan(begin_bytes - chunk.begin_bytes, end_bytes - begin_bytes)));
    }
  }
  return target;
}

Result<void> ExtentSource::read_part(std::size_t extent_index, std::size_t tensor_index,
                                     std::uint64_t offset_bytes,
                                     std::span<std::byte> target) const {
  const Origin origin = origins_[extent_index][tensor_index];
  const Weight& weight = weights_.weights[origin.weight_index];
  if (!origin.is_scale) {
    return checkpoint_.read_tensor_part(weight.tensor_index, offset_bytes, target);
  }
  return read_scale_bytes(checkpoint_, *weight.scale, offset_bytes, target);
}

}  // namespace trash_panda::format
