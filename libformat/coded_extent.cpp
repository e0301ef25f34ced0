#include "coded_extent.h"

#include <algorithm>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/exponent_code.h"

namespace trash_panda::format {

namespace {

/// A quarter of a chunk of bf16: what is smaller is biases and norms.
constexpr std::uint64_t kCodedBytesMin = 32'768;

std::uint64_t coded_element_count(const PackedTensor& tensor) {
  return tensor.size_bytes / (dtype_bits(tensor.dtype) / 8);
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
  if (!has_exponent_code(tensor.dtype) || tensor.is_scale || tensor.scale) {
    return misplaced("schema", "tensor \"{}\" of {}{} can't be in the exponent code", name,
                     dtype_name(tensor.dtype), tensor.scale ? " with a scale" : "");
  }
  // Half of the raw bytes are signs and mantissas at least, which the code keeps: so a manifest
  // can't ask for more memory than twice the shard.
  if (tensor.size_bytes == 0 || tensor.stored_bytes < tensor.size_bytes / 2 ||
      tensor.stored_bytes > exponent_coded_bytes_max(tensor.dtype, coded_element_count(tensor)) ||
      tensor.stored_bytes % kExponentChunkAlignBytes != 0) {
    return misplaced("size_mismatch",
                     "tensor \"{}\" of {} bytes can't be in an exponent code of {}", name,
                     tensor.size_bytes, tensor.stored_bytes);
  }
  return {};
}

}  // namespace

Result<void> make_room_for_codes(PackedExtent& extent, CodedFloats coded,
                                 std::uint64_t page_bytes) {
  const auto is_coded = [coded](const PackedTensor& tensor) {
    const bool is_chosen = (tensor.dtype == Dtype::kBf16 && coded != CodedFloats::kNone) ||
                           (tensor.dtype == Dtype::kF32 && coded == CodedFloats::kAll);
    return is_chosen && tensor.size_bytes >= kCodedBytesMin && !tensor.is_scale && !tensor.scale;
  };
  if (std::ranges::none_of(extent.tensors, is_coded)) {
    return {};
  }
  extent.codec = kCodecExponent;
  std::uint64_t end_bytes = 0;
  for (PackedTensor& tensor : extent.tensors) {
    TP_ASSIGN_OR_RETURN(tensor.stored_offset_bytes, round_up(end_bytes, kTensorAlignment));
    std::uint64_t room_bytes = tensor.size_bytes;
    if (is_coded(tensor)) {
      tensor.coding = TensorCoding::kExponent;
      room_bytes = exponent_coded_bytes_max(tensor.dtype, coded_element_count(tensor)) /
                   kExponentChunkAlignBytes * kExponentChunkAlignBytes;
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
    const std::string name = printable(tensor.name);
    if (tensor.stored_offset_bytes % kTensorAlignment != 0) {
      return misplaced("alignment", "tensor \"{}\" is stored at {}, which is no multiple of {}",
                       name, tensor.stored_offset_bytes, kTensorAlignment);
    }
    if (tensor.coding == TensorCoding::kExponent) {
      TP_RETURN_IF_ERROR(check_code(tensor));
    } else if (tensor.stored_bytes != tensor.size_bytes) {
      return misplaced("size_mismatch", "tensor \"{}\" is raw, but {} bytes stored and {} decoded",
                       name, tensor.stored_bytes, tensor.size_bytes);
    }
    if (tensor.stored_offset_bytes < end_bytes ||
        tensor.stored_offset_bytes > extent.stored_bytes ||
        tensor.stored_bytes > extent.stored_bytes - tensor.stored_offset_bytes) {
      return misplaced("offsets",
                       "tensor \"{}\" of {} stored bytes at {} is not inside [{}, {}) of extent "
                       "\"{}\"",
                       name, tensor.stored_bytes, tensor.stored_offset_bytes, end_bytes,
                       extent.stored_bytes, printable(extent.name));
    }
    end_bytes = tensor.stored_offset_bytes + tensor.stored_bytes;
  }
  return {};
}

}  // namespace trash_panda::format
