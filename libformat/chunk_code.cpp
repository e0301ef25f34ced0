#include "trash_panda/format/chunk_code.h"

#include <algorithm>

#include <fmt/format.h>

#include "trash_panda/format/zstd_code.h"

namespace trash_panda::format {

namespace {

static_assert(kCodedChunkHeadBytes == kExponentChunkHeadBytes &&
              kCodedChunkHeadBytes == kZstdChunkHeadBytes);
static_assert(kCodedChunkAlignBytes == kExponentChunkAlignBytes &&
              kCodedChunkAlignBytes == kZstdChunkAlignBytes);

/// A chunk of zstd code has a head and something behind it.
constexpr std::uint64_t kZstdChunkBytesMin = kZstdChunkHeadBytes + kZstdChunkAlignBytes;

std::uint64_t element_bytes(Dtype dtype) {
  return dtype_bits(dtype) / 8;
}

}  // namespace

bool has_code(TensorCoding coding, Dtype dtype) {
  return coding == TensorCoding::kZstd ? dtype != Dtype::kGgmlBlock : has_exponent_code(dtype);
}

std::uint64_t chunk_raw_bytes(TensorCoding coding, Dtype dtype) {
  return coding == TensorCoding::kZstd ? kZstdChunkBytes
                                       : kExponentChunkElements * element_bytes(dtype);
}

std::uint64_t coded_bytes_max(TensorCoding coding, Dtype dtype, std::uint64_t raw_bytes) {
  return coding == TensorCoding::kZstd
             ? zstd_coded_bytes_max(raw_bytes)
             : exponent_coded_bytes_max(dtype, raw_bytes / element_bytes(dtype));
}

std::uint64_t coded_bytes_min(TensorCoding coding, Dtype, std::uint64_t raw_bytes) {
  // Half of the raw bytes are signs and mantissas at least, which the exponent code keeps.
  return coding == TensorCoding::kZstd
             ? (raw_bytes / kZstdChunkBytes + (raw_bytes % kZstdChunkBytes == 0 ? 0 : 1)) *
                   kZstdChunkBytesMin
             : raw_bytes / 2;
}

Result<std::uint64_t> encode_chunks(TensorCoding coding, Dtype dtype,
                                    std::span<const std::byte> raw, std::span<std::byte> coded) {
  return coding == TensorCoding::kZstd ? encode_zstd(dtype, raw, coded)
                                       : Result<std::uint64_t>(encode_exponents(dtype, raw, coded));
}

Result<CodedChunkSize> read_chunk_size(TensorCoding coding, Dtype dtype,
                                       std::span<const std::byte> head) {
  if (coding == TensorCoding::kZstd) {
    TP_ASSIGN_OR_RETURN(const ZstdChunkSize size, read_zstd_chunk_size(dtype, head));
    return CodedChunkSize{.coded_bytes = size.coded_bytes, .raw_bytes = size.raw_bytes};
  }
  TP_ASSIGN_OR_RETURN(const ExponentChunkSize size, read_exponent_chunk_size(dtype, head));
  return CodedChunkSize{.coded_bytes = size.coded_bytes,
                        .raw_bytes = size.element_count * element_bytes(dtype)};
}

Result<void> append_chunk_offsets(TensorCoding coding, Dtype dtype,
                                  std::span<const std::byte> coded, std::uint64_t raw_bytes,
                                  std::vector<std::uint64_t>& offsets) {
  std::uint64_t offset_bytes = 0;
  offsets.push_back(offset_bytes);
  const std::uint64_t whole_bytes = chunk_raw_bytes(coding, dtype);
  std::uint64_t left_bytes = raw_bytes;
  while (left_bytes > 0 && coded.size() - offset_bytes >= kCodedChunkHeadBytes) {
    TP_ASSIGN_OR_RETURN(const CodedChunkSize chunk,
                        read_chunk_size(coding, dtype, coded.subspan(offset_bytes)));
    // Only the last one is shorter: whoever wants an element knows which chunk has it.
    if (chunk.raw_bytes != std::min(whole_bytes, left_bytes) ||
        chunk.coded_bytes > coded.size() - offset_bytes) {
      break;
    }
    left_bytes -= chunk.raw_bytes;
    offset_bytes += chunk.coded_bytes;
    offsets.push_back(offset_bytes);
  }
  if (left_bytes > 0 || offset_bytes != coded.size()) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("a code of {} bytes does not hold {} in its chunks, but {} in {}",
                          coded.size(), raw_bytes, raw_bytes - left_bytes, offset_bytes))
            .with_reason("code"));
  }
  return {};
}

Result<std::vector<std::uint64_t>> chunk_offsets(TensorCoding coding, Dtype dtype,
                                                 std::span<const std::byte> coded,
                                                 std::uint64_t raw_bytes) {
  std::vector<std::uint64_t> offsets;
  TP_RETURN_IF_ERROR(append_chunk_offsets(coding, dtype, coded, raw_bytes, offsets));
  return offsets;
}

Result<void> decode_chunk(TensorCoding coding, Dtype dtype, std::span<const std::byte> coded_chunk,
                          std::span<std::byte> raw, DecodedUse use) {
  return coding == TensorCoding::kZstd
             ? decode_zstd_chunk(dtype, coded_chunk, raw)
             : decode_exponent_chunk(dtype, coded_chunk, raw, {.use = use});
}

}  // namespace trash_panda::format
