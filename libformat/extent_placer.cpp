#include "extent_placer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace trash_panda::format {

namespace {

std::uint64_t bytes_to_next(std::uint64_t position, std::uint64_t alignment) {
  return (alignment - position % alignment) % alignment;
}

}  // namespace

void ExtentPlacer::place(std::size_t chunk_index, const PackChunk& chunk,
                         std::span<const std::byte> bytes) {
  PackedExtent& extent = manifest_.extents[chunk.extent_index];
  Padding& padding = paddings_[chunk_index];
  if (chunk.begins_extent) {
    extent.offset_bytes = extent_offset_bytes_;
    position_ = 0;
  }
  if (chunk.begins_span) {
    padding.before_bytes = bytes_to_next(position_, kTensorAlignment);
    add_zeros(padding.before_bytes);
    for (PackedTensor& tensor :
         std::span(extent.tensors).subspan(chunk.first_tensor, chunk.tensor_count)) {
      tensor.stored_offset_bytes = position_ + (tensor.offset_bytes - chunk.begin_bytes);
    }
  }
  checksum_.update(bytes);
  position_ += bytes.size();
  if (chunk.ends_span && chunk.is_coded) {
    PackedTensor& tensor = extent.tensors[chunk.first_tensor];
    tensor.stored_bytes = position_ - tensor.stored_offset_bytes;
  }
  if (chunk.ends_extent) {
    padding.behind_bytes = bytes_to_next(position_, manifest_.page_bytes);
    add_zeros(padding.behind_bytes);
    extent.stored_bytes = position_;
    extent.checksum = std::exchange(checksum_, Checksum()).hex();
    extent_offset_bytes_ += position_;
  }
}

void ExtentPlacer::add_zeros(std::uint64_t size_bytes) {
  static constexpr std::array<std::byte, 4096> kZeroPage{};
  position_ += size_bytes;
  while (size_bytes > 0) {
    const std::uint64_t piece_bytes = std::min<std::uint64_t>(size_bytes, kZeroPage.size());
    checksum_.update(std::span(kZeroPage).first(piece_bytes));
    size_bytes -= piece_bytes;
  }
}

}  // namespace trash_panda::format
