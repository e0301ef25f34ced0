// A zstd code: a byte that says the dtype, then chunks. Besides, the same bytes as elements to
// code.

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "trash_panda/format/zstd_code.h"

#include "fuzz_target.h"

namespace trash_panda::fuzz {

namespace {

using format::Dtype;

/// Decodes chunk after chunk, each into memory of its own. @return Whether the first one is sound.
bool decode_chunks(Dtype dtype, std::span<const std::byte> coded) {
  bool is_sound = false;
  while (coded.size() >= format::kZstdChunkHeadBytes) {
    const auto chunk = format::read_zstd_chunk_size(dtype, coded);
    if (!chunk) {
      check_refusal(chunk.error());
      return is_sound;
    }
    if (chunk->coded_bytes > coded.size()) {
      return is_sound;
    }
    // Allocations of their own, so that the address sanitizer sees what is read or written outside.
    const std::vector<std::byte> alone(
        coded.begin(), coded.begin() + static_cast<std::ptrdiff_t>(chunk->coded_bytes));
    std::vector<std::byte> raw(chunk->raw_bytes);
    const Result<void> decoded = format::decode_zstd_chunk(dtype, alone, raw);
    if (!decoded) {
      check_refusal(decoded.error());
      return is_sound;
    }
    is_sound = true;
    coded = coded.subspan(chunk->coded_bytes);
  }
  return is_sound;
}

void encode_as_zstd(Dtype dtype, std::span<const std::byte> raw) {
  const std::size_t width = std::max(1U, format::dtype_bits(dtype) / 8);
  raw = raw.first(std::min<std::size_t>(raw.size(), format::kZstdChunkBytes) / width * width);
  std::vector<std::byte> coded(format::zstd_coded_bytes_max(raw.size()));
  const auto coded_bytes = format::encode_zstd(dtype, raw, coded);
  TP_ASSERT(coded_bytes && *coded_bytes <= coded.size());
  coded.resize(*coded_bytes);
  if (!raw.empty()) {
    std::vector<std::byte> decoded(raw.size());
    TP_ASSERT(format::decode_zstd_chunk(dtype, coded, decoded));
    TP_ASSERT(std::ranges::equal(decoded, raw));
  }
}

bool fuzz_zstd_code(std::string_view input) {
  constexpr std::array kDtypes = {Dtype::kF8E4M3, Dtype::kBf16, Dtype::kF32, Dtype::kI64};
  if (input.empty()) {
    return false;
  }
  const Dtype dtype = kDtypes.at(static_cast<unsigned char>(input.front()) % kDtypes.size());
  const std::span<const std::byte> bytes = std::as_bytes(std::span(input.substr(1)));
  encode_as_zstd(dtype, bytes);
  return decode_chunks(dtype, bytes);
}

/// Some chunks of 1 MiB, and what zstd itself works in.
constexpr std::size_t kZstdBufferBytes = 16U << 20U;

[[maybe_unused]] const bool kZstdCodeAdded =
    add_target("zstd_code", fuzz_zstd_code, kZstdBufferBytes);

}  // namespace

}  // namespace trash_panda::fuzz
