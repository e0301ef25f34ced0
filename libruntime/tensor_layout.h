#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/runtime/streamer.h"

namespace trash_panda::runtime {

/// One tensor that the user of an extent sees, and how it comes about.
struct TensorStep {
  const format::PackedTensor* stored;
  const format::PackedTensor* scale;   ///< That is multiplied in; null: none.
  format::Dtype dtype;                 ///< Seen by the user.
  std::uint64_t size_bytes;            ///< In that dtype.
  bool is_in_place;                    ///< The stored bytes are the tensor.
  std::uint64_t compute_offset_bytes;  ///< Otherwise: where it goes in the compute buffer.
  /// Of a coded weight with a scale that is multiplied in: where in the compute buffer its payload
  /// goes first, as the source has it.
  std::uint64_t decoded_offset_bytes = 0;
  /// Of a weight in the exponent code: its first chunk among those of the extent.
  std::uint64_t chunk_index = 0;
};

/// What becomes of an extent's tensors. Points into the extent that it was made for.
struct TensorLayout {
  std::vector<TensorStep> steps;    ///< By offset in the extent.
  std::uint64_t compute_bytes = 0;  ///< Size of the compute buffer; 0: all are in place.
  bool is_coded = false;            ///< Some are decoded.
  std::uint64_t chunk_count = 0;    ///< Of the tensors in the exponent code together.
  /// Where a device that decodes finds the table of these chunks: behind the extent.
  std::uint64_t chunk_table_offset_bytes = 0;
};

/// Where a tensor lies in the memory of its extent.
[[nodiscard]] inline std::span<std::byte> stored_bytes(const format::PackedTensor& tensor,
                                                       std::span<std::byte> extent) {
  return extent.subspan(tensor.stored_offset_bytes, tensor.stored_bytes);
}

/// Whether tensors that stay as they are stay where they are.
enum class Unchanged {
  kInPlace,
  kCopied,  ///< So that the extent's memory can be given back.
};

/// Decides where each tensor goes, coded ones always into the compute buffer, and its dtype: an
/// override by name, else the compute dtype for floats of 8 to 32 bits, else the stored one, or F32
/// where the pack holds F32 as BF16.
/// Integers are never expanded, F64 only by an override. Scales that are multiplied in are not
/// listed.
///
/// @retval kUsage        An override asks for what expand() can't do.
/// @retval kUnsupported  A weight with a scale is of a dtype that expand() does not read.
Result<TensorLayout> lay_out_tensors(const format::PackedExtent& extent,
                                     const StreamOptions& options, Unchanged unchanged);

/// Resolves dtype_overrides to the names of stored tensors.
///
/// @retval kUsage  A name is neither a tensor nor an alias of the pack, an alias and its tensor
///                 disagree, or compute_dtype is not BF16, F16 or F32.
Result<StreamOptions> resolve_options(const format::Manifest& manifest, StreamOptions options);

}  // namespace trash_panda::runtime
