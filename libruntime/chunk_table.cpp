#include "chunk_table.h"

#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/format/exponent_code.h"

namespace trash_panda::runtime {

namespace {

using format::PackedTensor;

/// Begins of chunks are 32 bits wide.
constexpr std::uint64_t kCodedBytesMax = format::kExponentChunkAlignBytes << 32;

Result<void> check_coding(const PackedTensor& tensor) {
  if (tensor.coding != format::TensorCoding::kExponent) {
    return std::unexpected(
        Error(ErrorCode::kUnsupported,
              fmt::format("\"{}\" is in the {} code, which is not decoded on a GPU",
                          printable(tensor.name), format::tensor_coding_name(tensor.coding)))
            .with_hint("pack again with --compress exponent or --compress none"));
  }
  if (tensor.stored_offset_bytes % format::kExponentChunkAlignBytes != 0 ||
      tensor.stored_bytes > kCodedBytesMax) {
    return std::unexpected(
        Error(ErrorCode::kUnsupported,
              fmt::format("the code of \"{}\" is not on a multiple of {} bytes",
                          printable(tensor.name), format::kExponentChunkAlignBytes))
            .with_hint("pack the checkpoint again"));
  }
  return {};
}

Result<void> add_chunks(const PackedTensor& tensor, std::span<const std::byte> coded,
                        std::vector<std::uint32_t>& table) {
  const std::uint64_t count = tensor.size_bytes / (format::dtype_bits(tensor.dtype) / 8);
  TP_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> begins,
                      format::exponent_chunk_offsets(tensor.dtype, coded, count));
  for (std::size_t chunk = 0; chunk + 1 < begins.size(); ++chunk) {
    TP_RETURN_IF_ERROR(format::check_exponent_chunk(
        tensor.dtype, coded.subspan(begins[chunk], begins[chunk + 1] - begins[chunk])));
    table.push_back(static_cast<std::uint32_t>(begins[chunk] / format::kExponentChunkAlignBytes));
  }
  return {};
}

}  // namespace

std::uint64_t device_bytes(const format::PackedExtent& extent, const TensorLayout& layout) {
  return layout.chunk_count == 0
             ? extent.stored_bytes
             : layout.chunk_table_offset_bytes + kChunkEntryBytes * layout.chunk_count;
}

Result<std::vector<std::uint32_t>> make_chunk_table(const TensorLayout& layout,
                                                    std::span<const std::byte> extent) {
  std::vector<std::uint32_t> table;
  table.reserve(layout.chunk_count);
  for (const TensorStep& step : layout.steps) {
    const PackedTensor& tensor = *step.stored;
    if (tensor.coding == format::TensorCoding::kRaw) {
      continue;
    }
    Result<void> added = check_coding(tensor);
    if (added) {
      TP_ASSERT(table.size() == step.chunk_index);
      added = add_chunks(tensor, extent.subspan(tensor.stored_offset_bytes, tensor.stored_bytes),
                         table);
    }
    if (!added) {
      return std::unexpected(
          std::move(added).error().with_context(fmt::format("\"{}\"", printable(tensor.name))));
    }
  }
  return table;
}

Result<void> copy_extent(Device& device, std::span<std::byte> target,
                         std::span<const std::byte> extent, const TensorLayout& layout,
                         std::span<const std::uint32_t> chunks) {
  // The table first: when the other copy is refused, nothing that is queued needs its source.
  if (const std::span<const std::byte> table = std::as_bytes(chunks); !table.empty()) {
    TP_RETURN_IF_ERROR(
        device.copy(target.subspan(layout.chunk_table_offset_bytes, table.size()), table));
  }
  return device.copy(target.first(extent.size()), extent);
}

}  // namespace trash_panda::runtime
