// An exponent code: a byte that says the dtype, then chunks. Besides, the same bytes as elements to
// code. Every implementation that this CPU has must agree with the portable one.

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "trash_panda/format/exponent_code.h"

#include "fuzz_target.h"

namespace trash_panda::fuzz {

namespace {

using format::Dtype;
using format::ExponentImplementation;
using CodeBytes = std::vector<std::byte>;

/// Elements that the chunks say they have, as far as they can be followed. It is less than twice
/// as many as there are bytes, so a hostile head does not make us allocate much.
std::uint64_t count_elements(Dtype dtype, std::span<const std::byte> coded) {
  std::uint64_t count = 0;
  while (coded.size() >= format::kExponentChunkHeadBytes) {
    const auto chunk = format::read_exponent_chunk_size(dtype, coded);
    if (!chunk || chunk->coded_bytes > coded.size()) {
      break;
    }
    count += chunk->element_count;
    coded = coded.subspan(chunk->coded_bytes);
  }
  return count;
}

/// Every tile of every chunk, decoded alone.
CodeBytes decode_by_tiles(Dtype dtype, std::span<const std::byte> coded, std::size_t raw_bytes,
                          const ExponentImplementation& implementation) {
  const std::size_t width = format::dtype_bits(dtype) / 8;
  const auto offsets = format::exponent_chunk_offsets(dtype, coded, raw_bytes / width);
  TP_ASSERT(offsets);
  CodeBytes raw(raw_bytes);
  std::span<std::byte> rest = raw;
  for (std::size_t i = 0; i + 1 < offsets->size(); ++i) {
    const std::size_t chunk_bytes =
        std::min<std::size_t>(format::kExponentChunkElements * width, rest.size());
    for (std::size_t at = 0; at < chunk_bytes; at += format::kExponentTileElements * width) {
      const std::size_t size_bytes =
          std::min<std::size_t>(format::kExponentTileElements * width, chunk_bytes - at);
      TP_ASSERT(format::decode_exponent_tile(
          dtype, coded.subspan((*offsets)[i], (*offsets)[i + 1] - (*offsets)[i]),
          at / width / format::kExponentTileElements, rest.subspan(at, size_bytes),
          {.implementation = &implementation}));
    }
    rest = rest.subspan(chunk_bytes);
  }
  return raw;
}

std::optional<CodeBytes> decode_with(Dtype dtype, std::span<const std::byte> coded,
                                     std::size_t raw_bytes,
                                     const ExponentImplementation& implementation) {
  CodeBytes raw(raw_bytes);
  const Result<void> decoded =
      format::decode_exponents(dtype, coded, raw, {.implementation = &implementation});
  if (!decoded) {
    check_refusal(decoded.error());
    return std::nullopt;
  }
  TP_ASSERT(decode_by_tiles(dtype, coded, raw_bytes, implementation) == raw);
  return raw;
}

bool decode_as_code(Dtype dtype, std::span<const std::byte> coded) {
  const std::size_t raw_bytes = count_elements(dtype, coded) * format::dtype_bits(dtype) / 8;
  const auto expected =
      decode_with(dtype, coded, raw_bytes, **format::find_exponent_implementation("portable"));
  for (const ExponentImplementation& implementation : format::exponent_implementations()) {
    if (implementation.is_supported) {
      TP_ASSERT(decode_with(dtype, coded, raw_bytes, implementation) == expected);
    }
  }
  return expected.has_value();
}

void encode_as_elements(Dtype dtype, std::span<const std::byte> raw) {
  const std::size_t width = format::dtype_bits(dtype) / 8;
  raw = raw.first(raw.size() / width * width);
  std::optional<CodeBytes> expected;
  for (const ExponentImplementation& implementation : format::exponent_implementations()) {
    if (!implementation.is_supported) {
      continue;
    }
    CodeBytes coded(format::exponent_coded_bytes_max(dtype, raw.size() / width));
    coded.resize(format::encode_exponents(dtype, raw, coded, implementation));
    TP_ASSERT(!expected || coded == *expected);
    expected = coded;
    const auto decoded = decode_with(dtype, coded, raw.size(), implementation);
    TP_ASSERT(decoded && std::ranges::equal(*decoded, raw));
  }
}

bool fuzz_exponent_code(std::string_view input) {
  if (input.empty()) {
    return false;
  }
  const Dtype dtype = input.front() % 2 == 0 ? Dtype::kBf16 : Dtype::kF32;
  // An allocation of its own, so that the address sanitizer sees a read before the first byte too.
  const std::span<const std::byte> bytes = std::as_bytes(std::span(input.substr(1)));
  const CodeBytes coded(bytes.begin(), bytes.end());
  encode_as_elements(dtype, coded);
  return !coded.empty() && decode_as_code(dtype, coded);
}

[[maybe_unused]] const bool kExponentCodeAdded = add_target("exponent_code", fuzz_exponent_code);

}  // namespace

}  // namespace trash_panda::fuzz
