#pragma once

#include <cstdint>
#include <span>

#include "exponent/kernels.h"

/// The layout of a chunk of exponent-coded elements, and its head. The description that others
/// write readers from is in docs/pack_format.md.
namespace trash_panda::format {

inline constexpr std::size_t kTileRecordsOffset = 32;
inline constexpr std::size_t kTileRecordBytes = 4;

enum class ChunkForm : std::uint8_t {
  kRaw = 0,        ///< The elements as they are.
  kCodedBf16 = 1,  ///< Of 16-bit elements.
  kCodedF32 = 2,   ///< Of 32-bit elements: their upper halves coded, their lower ones as they are.
};

/// Where the parts of a chunk are, in bytes from its start, as its form and element count have it.
struct ChunkLayout {
  std::size_t tile_count;
  std::size_t group_count;
  std::size_t rests;
  std::size_t codes;
  std::size_t lower_halves;
  std::size_t escapes;  ///< Of the first tile; the others follow without gaps.
};

[[nodiscard]] constexpr std::size_t round_up_to(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

[[nodiscard]] ChunkLayout chunk_layout(ChunkForm form, std::size_t element_count);

/// Size of a raw chunk: the most that a chunk of that many elements takes.
[[nodiscard]] constexpr std::size_t raw_chunk_bytes(std::size_t raw_bytes) {
  return round_up_to(kExponentChunkHeadBytes + raw_bytes, kExponentChunkAlignBytes);
}

/// Size of a coded chunk whose escapes end at that offset.
[[nodiscard]] constexpr std::size_t coded_chunk_bytes(std::size_t escapes_end) {
  return round_up_to(escapes_end + kEscapeSlackBytes, kExponentChunkAlignBytes);
}

/// The fields of a chunk's head.
struct ChunkHead {
  std::uint32_t coded_bytes;
  std::uint32_t element_count;
  ChunkForm form;
  ExponentTables tables;  ///< Zeros in a raw chunk.
};

/// Writes a head into the first kTileRecordsOffset bytes of `chunk`.
void write_chunk_head(const ChunkHead& head, std::byte* chunk);

/// Reads and checks what a head says by itself.
///
/// @param head  At least kExponentChunkHeadBytes.
/// @retval kCorrupt  A field has a value that chunks of `dtype` do not have.
Result<ChunkHead> read_chunk_head(Dtype dtype, std::span<const std::byte> head);

[[nodiscard]] EscapeCounts read_tile_record(const std::byte* chunk, std::size_t tile);
void write_tile_record(const EscapeCounts& counts, std::size_t tile, std::byte* chunk);

/// Elements of a dtype that has an exponent code take that many bytes.
[[nodiscard]] std::size_t exponent_element_bytes(Dtype dtype);

}  // namespace trash_panda::format
