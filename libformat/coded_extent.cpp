#include "coded_extent.h"

#include <algorithm>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/chunk_code.h"

namespace trash_panda::format {

namespace {

/// A quarter of a chunk of bf16: what is smaller is biases and norms.
constexpr std::uint64_t kCodedBytesMin = 32'768;

TensorCoding coding_of(const PackedTensor& tensor, const ExtentLayout& layout) {
  if (tensor.is_scale || tensor.size_bytes < kCodedBytesMin) {
    return TensorCoding::kRaw;
  }
  const bool has_exponents = (tensor.dtype == Dtype::kBf16 && layout.coded != CodedFloats::kNone) ||
                             (tensor.dtype == Dtype::kF32 && layout.coded == CodedFloats::kAll);
  if (has_exponents && !tensor.scale) {
    return TensorCoding::kExponent;
  }
  return layout.rest == CodedRest::kZstd ? TensorCoding::kZstd : TensorCoding::kRaw;
}

template <class... Args>
std::unexpected<Error> misplaced(std::string_view reason, fmt::format_string<Args...> format,
                                 Args&&... args) {
  return std::unexpected(
      Error(ErrorCode::kCorrupt, fmt::format(format, std::forward<Args>(args)...))
          .with_reason(reason));
}

Result<void> check_code(const PackedTensor& tensor) {
  const std::string name = printable(tensor.name);
  const std::string_view code = tensor_coding_name(tensor.coding);
  const bool has_bad_scale = tensor.scale && tensor.coding == TensorCoding::kExponent;
  if (!has_code(tensor.coding, tensor.dtype) || tensor.is_scale || has_bad_scale) {
    return misplaced("schema", "tensor \"{}\" of {}{} can't be in the {} code", name,
                     dtype_name(tensor.dtype), has_bad_scale ? " with a scale" : "", code);
  }
  if (tensor.size_bytes == 0 ||
      tensor.stored_bytes < coded_bytes_min(tensor.coding, tensor.dtype, tensor.size_bytes) ||
      tensor.stored_bytes > coded_bytes_max(tensor.coding, tensor.dtype, tensor.size_bytes) ||
      tensor.stored_bytes % kCodedChunkAlignBytes != 0) {
    return misplaced("size_mismatch", "tensor \"{}\" of {} bytes can't be in {} {} code of {}",
                     name, tensor.size_bytes, tensor.coding == TensorCoding::kZstd ? "a" : "an",
                     code, tensor.stored_bytes);
  }
  return {};
}

}  // namespace

Result<void> make_room_for_codes(PackedExtent& extent, const ExtentLayout& layout,
                                 std::uint64_t page_bytes) {
  bool has_zstd = false;
  bool has_any = false;
  for (PackedTensor& tensor : extent.tensors) {
    tensor.coding = coding_of(tensor, layout);
    has_zstd = has_zstd || tensor.coding == TensorCoding::kZstd;
    has_any = has_any || tensor.coding != TensorCoding::kRaw;
  }
  if (!has_any) {
    return {};
  }
  extent.codec = has_zstd ? kCodecZstd : kCodecExponent;
  std::uint64_t end_bytes = 0;
  for (PackedTensor& tensor : extent.tensors) {
    TP_ASSIGN_OR_RETURN(tensor.stored_offset_bytes, round_up(end_bytes, kTensorAlignment));
    std::uint64_t room_bytes = tensor.size_bytes;
    if (tensor.coding != TensorCoding::kRaw) {
      room_bytes = coded_bytes_max(tensor.coding, tensor.dtype, tensor.size_bytes) /
                   kCodedChunkAlignBytes * kCodedChunkAlignBytes;
    }
    tensor.stored_bytes = room_bytes;
    // The odd bytes behind it are no part of the room, but make the padding.
    TP_ASSIGN_OR_RETURN(end_bytes, round_up(room_bytes, kTensorAlignment));
    if (end_bytes > UINT64_MAX / 2 - tensor.stored_offset_bytes) {
      return misplaced("overflow", "extent \"{}\" would take more than 2^63 bytes",
                       printable(extent.name));
    }
    end_bytes += tensor.stored_offset_bytes + 1;
  }
  TP_ASSIGN_OR_RETURN(extent.stored_bytes, round_up(end_bytes, page_bytes));
  return {};
}

Result<void> check_stored_places(const PackedExtent& extent) {
  std::uint64_t end_bytes = 0;
  for (const PackedTensor& tensor : extent.tensors) {
    const auto name = [&] { return printable(tensor.name); };
    if (tensor.stored_offset_bytes % kTensorAlignment != 0) {
      return misplaced("alignment", "tensor \"{}\" is stored at {}, which is no multiple of {}",
                       name(), tensor.stored_offset_bytes, kTensorAlignment);
    }
    if (tensor.coding != TensorCoding::kRaw) {
      TP_RETURN_IF_ERROR(check_code(tensor));
    } else if (tensor.stored_bytes != tensor.size_bytes) {
      return misplaced("size_mismatch", "tensor \"{}\" is raw, but {} bytes stored and {} decoded",
                       name(), tensor.stored_bytes, tensor.size_bytes);
    }
    if (tensor.stored_offset_bytes < end_bytes ||
        tensor.stored_offset_bytes > extent.stored_bytes ||
        tensor.stored_bytes > extent.stored_bytes - tensor.stored_offset_bytes) {
      return misplaced("offsets",
                       "tensor \"{}\" of {} stored bytes at {} is not inside [{}, {}) of extent "
                       "\"{}\"",
                       name(), tensor.stored_bytes, tensor.stored_offset_bytes, end_bytes,
                       extent.stored_bytes, printable(extent.name));
    }
    end_bytes = tensor.stored_offset_bytes + tensor.stored_bytes;
  }
  return {};
}

}  // namespace trash_panda::format
