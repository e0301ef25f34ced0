#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/dtype.h"
#include "trash_panda/format/exponent_code.h"
#include "trash_panda/format/manifest.h"

/// The codes of a pack's tensors, alike for whoever reads or writes them: arrays of chunks that say
/// their own size and decode alone. `coding` is never TensorCoding::kRaw here.
///
/// All functions are thread-safe, and trust no bytes of a code.
/// @see exponent_code.h, zstd_code.h
namespace trash_panda::format {

/// Leading bytes of a chunk that read_chunk_size() needs, of any code.
inline constexpr std::uint64_t kCodedChunkHeadBytes = 64;
/// What sizes of chunks, and so of codes, are multiples of.
inline constexpr std::uint64_t kCodedChunkAlignBytes = 64;

/// Whether arrays of that dtype can be so coded.
[[nodiscard]] bool has_code(TensorCoding coding, Dtype dtype);

/// Raw bytes of every chunk but the last of an array.
[[nodiscard]] std::uint64_t chunk_raw_bytes(TensorCoding coding, Dtype dtype);

/// The most bytes that an array takes when coded.
[[nodiscard]] std::uint64_t coded_bytes_max(TensorCoding coding, Dtype dtype,
                                            std::uint64_t raw_bytes);
/// The fewest, which keeps what a manifest may claim in proportion to its shards.
[[nodiscard]] std::uint64_t coded_bytes_min(TensorCoding coding, Dtype dtype,
                                            std::uint64_t raw_bytes);

/// Codes an array, or whole chunks of one. @return Size of the code in bytes.
/// @param coded  At least coded_bytes_max().
Result<std::uint64_t> encode_chunks(TensorCoding coding, Dtype dtype,
                                    std::span<const std::byte> raw, std::span<std::byte> coded);

/// How large a chunk is.
struct CodedChunkSize {
  std::uint64_t coded_bytes;
  std::uint64_t raw_bytes;
};

/// @param head  At least kCodedChunkHeadBytes. @retval kCorrupt  No such chunk begins so.
Result<CodedChunkSize> read_chunk_size(TensorCoding coding, Dtype dtype,
                                       std::span<const std::byte> head);

/// Where the chunks of a coded array begin, in bytes from its start, and where the last one ends:
/// one number more than there are chunks.
///
/// @retval kCorrupt  Heads do not add up to `raw_bytes` and to all of `coded`.
Result<std::vector<std::uint64_t>> chunk_offsets(TensorCoding coding, Dtype dtype,
                                                 std::span<const std::byte> coded,
                                                 std::uint64_t raw_bytes);

/// The same, behind what is in `offsets`, whose memory is used where it suffices.
Result<void> append_chunk_offsets(TensorCoding coding, Dtype dtype,
                                  std::span<const std::byte> coded, std::uint64_t raw_bytes,
                                  std::vector<std::uint64_t>& offsets);

/// Decodes one chunk, from its head to its end, into as many bytes as it says.
/// @retval kCorrupt  The code breaks its rules.
Result<void> decode_chunk(TensorCoding coding, Dtype dtype, std::span<const std::byte> coded_chunk,
                          std::span<std::byte> raw, DecodedUse use);

}  // namespace trash_panda::format
