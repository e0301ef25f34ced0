#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "exponent/chunk.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace trash_panda::format {

namespace {

std::unexpected<Error> bad_chunk(std::string what) {
  return std::unexpected(Error(ErrorCode::kCorrupt, std::move(what)).with_reason("exponent_chunk"));
}

/// A chunk whose head and tile records have been found to agree with its size.
struct CheckedChunk {
  const std::byte* bytes;
  ChunkHead head;
  ChunkLayout layout;
};

/// Checks that head, tile records and size agree, so that tiles can be found and read without
/// leaving the chunk, whatever their codes are.
Result<CheckedChunk> check_chunk(Dtype dtype, std::span<const std::byte> coded) {
  if (coded.size() < kExponentChunkHeadBytes) {
    return bad_chunk(fmt::format("a chunk of {} bytes is shorter than its head of {}", coded.size(),
                                 kExponentChunkHeadBytes));
  }
  TP_ASSIGN_OR_RETURN(const ChunkHead head, read_chunk_head(dtype, coded));
  if (head.coded_bytes != coded.size()) {
    return bad_chunk(fmt::format("a chunk says that it takes {} bytes, and {} are there",
                                 head.coded_bytes, coded.size()));
  }
  CheckedChunk chunk{
      .bytes = coded.data(), .head = head, .layout = chunk_layout(head.form, head.element_count)};
  if (head.form == ChunkForm::kRaw) {
    return chunk;
  }
  std::size_t end = chunk.layout.escapes;
  for (std::size_t tile = 0; tile < chunk.layout.tile_count; ++tile) {
    const EscapeCounts counts = read_tile_record(coded.data(), tile);
    const std::size_t count = std::min(kTileElements, head.element_count - tile * kTileElements);
    if (counts.escape_count > count || counts.literal_count > counts.escape_count) {
      return bad_chunk(fmt::format("tile {} of {} elements says {} escapes, {} of them literals",
                                   tile, count, counts.escape_count, counts.literal_count));
    }
    end += escape_bytes(counts);
  }
  if (coded_chunk_bytes(end) != coded.size()) {
    return bad_chunk(fmt::format("a chunk of {} bytes has escapes for {}", coded.size(),
                                 coded_chunk_bytes(end)));
  }
  return chunk;
}

/// Puts 32-bit elements together from their halves.
void join_halves(const std::byte* lower, const std::byte* upper, std::size_t count,
                 std::byte* raw) {
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(raw + 4 * i, lower + 2 * i, 2);
    std::memcpy(raw + 4 * i + 2, upper + 2 * i, 2);
  }
}

/// Decodes one tile whose escapes begin at `escapes`. @param raw  Just as many bytes as it has.
Result<void> decode_tile(const CheckedChunk& chunk, std::size_t tile, std::size_t escapes,
                         std::span<std::byte> raw, const ExponentKernels& kernels, DecodedUse use) {
  const std::size_t begin = tile * kTileElements;
  const std::size_t count = std::min(kTileElements, chunk.head.element_count - begin);
  const EscapeCounts counts = read_tile_record(chunk.bytes, tile);
  const ConstTilePlanes planes = {.rests = chunk.bytes + chunk.layout.rests + begin,
                                  .codes = chunk.bytes + chunk.layout.codes + begin / 4,
                                  .escapes = chunk.bytes + escapes};
  const std::size_t group_count = (count + kGroupElements - 1) / kGroupElements;
  const bool is_direct = chunk.head.form == ChunkForm::kCodedBf16 && count % kGroupElements == 0;
  alignas(64) std::array<std::byte, 2 * kTileElements> halves;
  if (!kernels.decode_tile(planes, group_count, counts, chunk.head.tables,
                           is_direct ? raw.data() : halves.data(),
                           is_direct ? use : DecodedUse::kSoon)) {
    return bad_chunk(fmt::format("tile {} has not the {} escapes and {} literals that it says",
                                 tile, counts.escape_count, counts.literal_count));
  }
  if (chunk.head.form == ChunkForm::kCodedF32) {
    join_halves(chunk.bytes + chunk.layout.lower_halves + 2 * begin, halves.data(), count,
                raw.data());
  } else if (!is_direct) {
    std::memcpy(raw.data(), halves.data(), raw.size());
  }
  return {};
}

/// Stores past the caches are ordered by nothing else: without this, a thread that is told that the
/// elements are there might not see them.
void finish_stores() {
#ifdef __x86_64__
  _mm_sfence();
#endif
}

const ExponentKernels& kernels_of(const ExponentDecodeOptions& options) {
  const ExponentImplementation& implementation =
      options.implementation != nullptr ? *options.implementation : best_exponent_implementation();
  TP_ASSERT(implementation.is_supported);
  return *implementation.kernels;
}

}  // namespace

Result<void> check_exponent_chunk(Dtype dtype, std::span<const std::byte> coded) {
  TP_RETURN_IF_ERROR(check_chunk(dtype, coded));
  return {};
}

Result<void> decode_exponent_chunk(Dtype dtype, std::span<const std::byte> coded_chunk,
                                   std::span<std::byte> raw, const ExponentDecodeOptions& options) {
  TP_ASSIGN_OR_RETURN(const CheckedChunk chunk, check_chunk(dtype, coded_chunk));
  const std::size_t element_bytes = exponent_element_bytes(dtype);
  if (chunk.head.element_count * element_bytes != raw.size()) {
    return bad_chunk(fmt::format("a chunk says {} elements where there are {}",
                                 chunk.head.element_count, raw.size() / element_bytes));
  }
  if (chunk.head.form == ChunkForm::kRaw) {
    std::memcpy(raw.data(), chunk.bytes + kExponentChunkHeadBytes, raw.size());
    return {};
  }
  const ExponentKernels& kernels = kernels_of(options);
  std::size_t escapes = chunk.layout.escapes;
  for (std::size_t tile = 0; tile < chunk.layout.tile_count; ++tile) {
    const std::size_t at = tile * kTileElements * element_bytes;
    TP_RETURN_IF_ERROR(
        decode_tile(chunk, tile, escapes,
                    raw.subspan(at, std::min(kTileElements * element_bytes, raw.size() - at)),
                    kernels, options.use));
    escapes += escape_bytes(read_tile_record(chunk.bytes, tile));
  }
  finish_stores();
  return {};
}

Result<void> decode_exponent_tile(Dtype dtype, std::span<const std::byte> coded_chunk,
                                  std::size_t tile_index, std::span<std::byte> raw,
                                  const ExponentDecodeOptions& options) {
  TP_ASSIGN_OR_RETURN(const CheckedChunk chunk, check_chunk(dtype, coded_chunk));
  const std::size_t element_bytes = exponent_element_bytes(dtype);
  const std::size_t begin = tile_index * kTileElements;
  if (tile_index >= chunk.layout.tile_count ||
      std::min(kTileElements, chunk.head.element_count - begin) * element_bytes != raw.size()) {
    return bad_chunk(fmt::format("a chunk of {} elements has no tile {} of {} bytes",
                                 chunk.head.element_count, tile_index, raw.size()));
  }
  if (chunk.head.form == ChunkForm::kRaw) {
    std::memcpy(raw.data(), chunk.bytes + kExponentChunkHeadBytes + begin * element_bytes,
                raw.size());
    return {};
  }
  std::size_t escapes = chunk.layout.escapes;
  for (std::size_t tile = 0; tile < tile_index; ++tile) {
    escapes += escape_bytes(read_tile_record(chunk.bytes, tile));
  }
  TP_RETURN_IF_ERROR(
      decode_tile(chunk, tile_index, escapes, raw, kernels_of(options), options.use));
  finish_stores();
  return {};
}

Result<ExponentChunkSize> read_exponent_chunk_size(Dtype dtype, std::span<const std::byte> head) {
  TP_ASSIGN_OR_RETURN(const ChunkHead read, read_chunk_head(dtype, head));
  return ExponentChunkSize{.coded_bytes = read.coded_bytes, .element_count = read.element_count};
}

Result<std::vector<std::uint64_t>> exponent_chunk_offsets(Dtype dtype,
                                                          std::span<const std::byte> coded,
                                                          std::uint64_t element_count) {
  std::vector<std::uint64_t> offsets = {0};
  std::uint64_t left_count = element_count;
  while (left_count > 0) {
    const std::span<const std::byte> rest = coded.subspan(offsets.back());
    if (rest.size() < kExponentChunkHeadBytes) {
      return bad_chunk(fmt::format("the code ends at byte {}, with {} of {} elements to come",
                                   coded.size(), left_count, element_count));
    }
    TP_ASSIGN_OR_RETURN(const ExponentChunkSize chunk, read_exponent_chunk_size(dtype, rest));
    if (chunk.element_count != std::min(left_count, kExponentChunkElements) ||
        chunk.coded_bytes > rest.size()) {
      return bad_chunk(fmt::format(
          "a chunk of {} elements in {} bytes begins at byte {}, with {} elements and {} bytes "
          "to come",
          chunk.element_count, chunk.coded_bytes, offsets.back(), left_count, rest.size()));
    }
    left_count -= chunk.element_count;
    offsets.push_back(offsets.back() + chunk.coded_bytes);
  }
  if (offsets.back() != coded.size()) {
    return bad_chunk(fmt::format("{} bytes follow the code of {} elements",
                                 coded.size() - offsets.back(), element_count));
  }
  return offsets;
}

Result<void> decode_exponents(Dtype dtype, std::span<const std::byte> coded,
                              std::span<std::byte> raw, const ExponentDecodeOptions& options) {
  const std::size_t element_bytes = exponent_element_bytes(dtype);
  TP_ASSERT(raw.size() % element_bytes == 0);
  TP_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> offsets,
                      exponent_chunk_offsets(dtype, coded, raw.size() / element_bytes));
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::size_t at = i * kExponentChunkElements * element_bytes;
    const std::size_t size_bytes =
        std::min<std::size_t>(kExponentChunkElements * element_bytes, raw.size() - at);
    Result<void> decoded =
        decode_exponent_chunk(dtype, coded.subspan(offsets[i], offsets[i + 1] - offsets[i]),
                              raw.subspan(at, size_bytes), options);
    if (!decoded) {
      return std::unexpected(std::move(decoded).error().with_context(fmt::format("chunk {}", i)));
    }
  }
  return {};
}

}  // namespace trash_panda::format
