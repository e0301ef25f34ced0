#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/dtype.h"

/// The code that packs call `zstd`: the bytes of elements are sorted by their place, so that those
/// that are alike lie together, and each such *plane* is a zstd frame, if that is smaller.
/// Lossless, for every dtype; slower than the exponent code by far, for what that does not know,
/// such as fp8.
///
/// An array is coded as *chunks* of kZstdChunkBytes, one after the other, each of which says its
/// own size and decodes alone.
///
/// All functions are thread-safe. Bytes of coded arrays are never trusted: whatever they are,
/// nothing outside of the given spans is read or written.
/// @see docs/pack_format.md, "The zstd code"
namespace trash_panda::format {

/// Raw bytes of every chunk but the last of an array: whole elements of every dtype.
inline constexpr std::uint64_t kZstdChunkBytes = 1'048'576;
/// What the size of every chunk is a multiple of, in bytes.
inline constexpr std::uint64_t kZstdChunkAlignBytes = 64;
/// Leading bytes of a chunk that read_zstd_chunk_size() needs.
inline constexpr std::uint64_t kZstdChunkHeadBytes = 64;

/// The most bytes that so many raw ones take: themselves, and for each chunk a head of 64 bytes and
/// less than 64 bytes of padding.
[[nodiscard]] std::uint64_t zstd_coded_bytes_max(std::uint64_t raw_bytes);

/// Codes an array, or a piece of one: pieces of whole chunks (and whatever rest for the last),
/// coded one by one, make the same bytes as the array at once. Other versions of libzstd may make
/// others.
///
/// @param raw    Whole elements, at any address.
/// @param coded  At least zstd_coded_bytes_max() bytes, at any address; does not overlap `raw`.
/// @return Size of the code in bytes, a multiple of kZstdChunkAlignBytes.
/// @retval kFailed  There is no memory for libzstd.
Result<std::uint64_t> encode_zstd(Dtype dtype, std::span<const std::byte> raw,
                                  std::span<std::byte> coded);

/// How large a chunk is, from its first bytes.
struct ZstdChunkSize {
  std::uint64_t coded_bytes;  ///< Its head and padding included.
  std::uint64_t raw_bytes;    ///< 1 to kZstdChunkBytes.
};

/// Reads the size of a chunk from its head.
///
/// @param head  At least kZstdChunkHeadBytes, from the start of the chunk.
/// @retval kCorrupt  No chunk of `dtype` begins so.
Result<ZstdChunkSize> read_zstd_chunk_size(Dtype dtype, std::span<const std::byte> head);

/// Decodes one chunk.
///
/// @param coded_chunk  From its head to its end.
/// @param raw          As many bytes as the chunk says; what is in it after an error is
/// unspecified.
/// @retval kCorrupt  The code breaks its rules.
/// @retval kFailed   There is no memory for libzstd.
Result<void> decode_zstd_chunk(Dtype dtype, std::span<const std::byte> coded_chunk,
                               std::span<std::byte> raw);

}  // namespace trash_panda::format
