#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/dtype.h"

/// The lossless code of bf16 and f32 weights that packs call `exponent`: signs and mantissas as
/// they are, exponents in two bits with escapes. Coded, gaussian bf16 takes 0.68 of its bytes, and
/// decoding costs about as much as copying.
///
/// An array of elements is coded as *chunks* of kExponentChunkElements, one after the other, each
/// of which says its own size and decodes alone; in a chunk each *tile* of kExponentTileElements
/// decodes alone. So a writer appends chunks without knowing what comes, a reader starts when the
/// first chunk is there, and threads share an array by chunks.
///
/// All functions are thread-safe. Bytes of coded arrays are never trusted: whatever they are,
/// nothing outside of the given spans is read or written.
/// @see docs/pack_format.md, "The exponent code"
namespace trash_panda::format {

/// Elements of every chunk but the last of an array: 128 KiB of bf16, which with their code and
/// what they decode to stay in a core's second-level cache.
inline constexpr std::uint64_t kExponentChunkElements = 65'536;
/// Elements of every tile but the last of a chunk: a page of bf16, and as many tiles in a chunk as
/// a warp has lanes.
inline constexpr std::uint64_t kExponentTileElements = 2'048;
/// What the size of every chunk is a multiple of, in bytes. An array SHOULD start at such an
/// address, so that planes of codes lie in whole cache lines and vectors; it decodes from anywhere.
inline constexpr std::uint64_t kExponentChunkAlignBytes = 64;
/// Leading bytes of a chunk that read_exponent_chunk_size() needs.
inline constexpr std::uint64_t kExponentChunkHeadBytes = 64;

struct ExponentKernels;

/// One set of inner loops. All of them make the same bytes of the same elements, and back.
struct ExponentImplementation {
  std::string_view name;          ///< "avx512", "avx2" or "portable".
  std::string_view instructions;  ///< What the CPU must have, for people; empty for "portable".
  bool is_supported;              ///< Whether this CPU, under this operating system, has it.
  const ExponentKernels* kernels;
};

/// Every implementation in this program, the fastest first; the last, "portable", always runs.
[[nodiscard]] std::span<const ExponentImplementation> exponent_implementations();

/// The fastest that this CPU supports: what is used when none is named.
[[nodiscard]] const ExponentImplementation& best_exponent_implementation();

/// The implementation of that name, to force it in tests, benchmarks and when in doubt.
///
/// @retval kUnsupported  This CPU lacks its instructions.
/// @retval kUsage        There is none of that name; the message lists those that there are.
Result<const ExponentImplementation*> find_exponent_implementation(std::string_view name);

/// Whether arrays of that dtype have an exponent code: kBf16 and kF32. All functions below expect
/// such a dtype. (F16 is left out: with fewer bits of exponent it would take 0.868 of its bytes.)
[[nodiscard]] bool has_exponent_code(Dtype dtype);

/// The most bytes that `element_count` elements take when coded: their raw bytes, and for each
/// chunk a head of 64 bytes and less than 64 bytes of padding.
[[nodiscard]] std::uint64_t exponent_coded_bytes_max(Dtype dtype, std::uint64_t element_count);

/// Codes an array, or a piece of one: pieces of whole chunks (and whatever rest for the last),
/// coded one by one, make the same bytes as the array at once.
///
/// @param raw    Whole elements, at any address.
/// @param coded  At least exponent_coded_bytes_max() bytes, at any address; does not overlap `raw`.
/// @return Size of the code in bytes, a multiple of kExponentChunkAlignBytes. What is behind it in
///         `coded` is unspecified.
std::uint64_t encode_exponents(
    Dtype dtype, std::span<const std::byte> raw, std::span<std::byte> coded,
    const ExponentImplementation& implementation = best_exponent_implementation());

/// How large a chunk is, from its first bytes.
struct ExponentChunkSize {
  std::uint64_t coded_bytes;    ///< Its head and padding included.
  std::uint64_t element_count;  ///< 1 to kExponentChunkElements.
};

/// Reads the size of a chunk from its head, for readers that do not have all of it yet.
///
/// @param head  At least kExponentChunkHeadBytes, from the start of the chunk.
/// @retval kCorrupt  No chunk of `dtype` begins so.
Result<ExponentChunkSize> read_exponent_chunk_size(Dtype dtype, std::span<const std::byte> head);

/// Checks all that a chunk says of itself, and nothing of its codes: for decoders that find tiles
/// by it, and must not be led out of the chunk.
///
/// @param coded  The whole chunk.
/// @retval kCorrupt  Its head, its tile records and its size disagree.
Result<void> check_exponent_chunk(Dtype dtype, std::span<const std::byte> coded);

/// Where the chunks of a coded array begin, in bytes from its start, and where the last one ends:
/// one number more than there are chunks. Reads their heads only: to share the array among threads.
///
/// @retval kCorrupt  Heads do not add up to `element_count` elements and to all of `coded`.
Result<std::vector<std::uint64_t>> exponent_chunk_offsets(Dtype dtype,
                                                          std::span<const std::byte> coded,
                                                          std::uint64_t element_count);

/// When what was decoded is read next, which says how it is best written.
enum class DecodedUse : std::uint8_t {
  kLater,  ///< By another device, or after much else: past the caches, where `raw` is aligned
           ///< to 64.
  kSoon,   ///< By this core: through the caches.
};

struct ExponentDecodeOptions {
  const ExponentImplementation* implementation = nullptr;  ///< Null: the best.
  DecodedUse use = DecodedUse::kLater;
};

/// Decodes an array.
///
/// @param coded  All of it, and nothing behind it.
/// @param raw    As many bytes as the elements take; what is in it after an error is unspecified.
/// @retval kCorrupt  The code breaks its rules, or is of another number of elements.
Result<void> decode_exponents(Dtype dtype, std::span<const std::byte> coded,
                              std::span<std::byte> raw, const ExponentDecodeOptions& options = {});

/// Decodes one chunk. @see decode_exponents, exponent_chunk_offsets
///
/// @param coded_chunk  From its head to its end.
/// @param raw          As many bytes as the chunk's elements take.
Result<void> decode_exponent_chunk(Dtype dtype, std::span<const std::byte> coded_chunk,
                                   std::span<std::byte> raw,
                                   const ExponentDecodeOptions& options = {});

/// Decodes one tile, and reads no other tile's code: what a consumer of part of a tensor, or a warp
/// of a GPU, does.
///
/// @param coded_chunk  The whole chunk that the tile is in.
/// @param tile_index   From the start of the chunk.
/// @param raw          As many bytes as the tile's elements take.
Result<void> decode_exponent_tile(Dtype dtype, std::span<const std::byte> coded_chunk,
                                  std::size_t tile_index, std::span<std::byte> raw,
                                  const ExponentDecodeOptions& options = {});

}  // namespace trash_panda::format
