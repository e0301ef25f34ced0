// What holds of the exponent code whichever implementation runs it: every one that this CPU has is
// put through the same tests, and compared with the portable one.

#include "trash_panda/format/exponent_code.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/support/exponent_samples.h"

namespace trash_panda::format {
namespace {

using testing::Bytes;
using testing::encode;
using testing::NamedArray;
using testing::width_of;

struct ExponentCase {
  const ExponentImplementation* implementation;
  Dtype dtype;
};

std::vector<ExponentCase> exponent_cases() {
  std::vector<ExponentCase> cases;
  for (const ExponentImplementation& implementation : exponent_implementations()) {
    if (implementation.is_supported) {
      cases.push_back({&implementation, Dtype::kBf16});
      cases.push_back({&implementation, Dtype::kF32});
    }
  }
  return cases;
}

class ExponentCode : public ::testing::TestWithParam<ExponentCase> {
 protected:
  [[nodiscard]] static Dtype dtype() { return GetParam().dtype; }
  [[nodiscard]] static const ExponentImplementation& implementation() {
    return *GetParam().implementation;
  }
  [[nodiscard]] static ExponentDecodeOptions options(DecodedUse use = DecodedUse::kLater) {
    return {.implementation = &implementation(), .use = use};
  }
  [[nodiscard]] static Bytes code(std::span<const std::byte> raw) {
    return encode(dtype(), raw, implementation());
  }

  /// Decodes to an address that is `misalignment` past a multiple of 64, between guards.
  static Bytes decode(const Bytes& coded, std::size_t raw_bytes, std::size_t misalignment = 0,
                      DecodedUse use = DecodedUse::kLater) {
    constexpr std::size_t kGuardBytes = 128;
    Bytes room(raw_bytes + 2 * kGuardBytes + 64, std::byte{0x5a});
    const auto address = std::bit_cast<std::uintptr_t>(room.data() + kGuardBytes);
    const std::size_t begin = kGuardBytes + (64 - address % 64) % 64 + misalignment % 64;
    const std::span<std::byte> raw = std::span(room).subspan(begin, raw_bytes);
    const Result<void> decoded = decode_exponents(dtype(), coded, raw, options(use));
    EXPECT_TRUE(decoded) << decoded.error().message();
    Bytes result(raw.begin(), raw.end());
    std::ranges::fill(raw, std::byte{0x5a});
    EXPECT_TRUE(std::ranges::all_of(room, [](std::byte byte) { return byte == std::byte{0x5a}; }))
        << "written outside of the array";
    return result;
  }
};

INSTANTIATE_TEST_SUITE_P(, ExponentCode, ::testing::ValuesIn(exponent_cases()),
                         [](const ::testing::TestParamInfo<ExponentCase>& one) {
                           return std::string(one.param.implementation->name) + "_" +
                                  std::string(dtype_name(one.param.dtype));
                         });

TEST_P(ExponentCode, GivesEveryKindOfArrayBack) {
  for (const NamedArray& array :
       testing::arrays_of_each_kind(dtype(), 2 * kExponentChunkElements + 3 * 2048 + 77)) {
    SCOPED_TRACE(array.name);
    const Bytes coded = code(array.raw);
    EXPECT_EQ(decode(coded, array.raw.size()), array.raw);
    EXPECT_EQ(decode(coded, array.raw.size(), 0, DecodedUse::kSoon), array.raw);
  }
}

TEST_P(ExponentCode, MakesTheBytesThatThePortableOneMakes) {
  const ExponentImplementation& portable = **find_exponent_implementation("portable");
  for (const NamedArray& array :
       testing::arrays_of_each_kind(dtype(), kExponentChunkElements + 5 * 2048 + 13)) {
    SCOPED_TRACE(array.name);
    EXPECT_EQ(code(array.raw), encode(dtype(), array.raw, portable));
  }
}

TEST_P(ExponentCode, TakesEveryLengthAroundEdges) {
  const Bytes all = testing::gaussian(dtype(), kExponentChunkElements + 200, 3);
  std::vector<std::size_t> counts;
  for (std::size_t count = 0; count <= 2 * 64 + 1; ++count) {
    counts.push_back(count);
  }
  for (const std::size_t edge : {kExponentTileElements, 3 * kExponentTileElements}) {
    for (std::size_t count = edge - 65; count <= edge + 65; ++count) {
      counts.push_back(count);
    }
  }
  for (const int past : {-64, -1, 0, 1, 64, 65}) {
    counts.push_back(kExponentChunkElements + static_cast<std::size_t>(past));
  }
  for (const std::size_t count : counts) {
    SCOPED_TRACE(count);
    const Bytes raw(all.begin(),
                    all.begin() + static_cast<std::ptrdiff_t>(count * width_of(dtype())));
    const Bytes coded = code(raw);
    ASSERT_LE(coded.size(), exponent_coded_bytes_max(dtype(), count));
    ASSERT_EQ(coded.size() % kExponentChunkAlignBytes, 0U);
    ASSERT_EQ(decode(coded, raw.size()), raw);
  }
}

TEST_P(ExponentCode, WorksAtAnyAddress) {
  const Bytes raw = testing::gaussian(dtype(), 3 * 2048 + 5);
  const Bytes coded = code(raw);
  for (std::size_t shift = 0; shift < 64; ++shift) {
    SCOPED_TRACE(shift);
    Bytes shifted_raw(shift);
    shifted_raw.insert(shifted_raw.end(), raw.begin(), raw.end());
    Bytes shifted(shift + exponent_coded_bytes_max(dtype(), raw.size() / width_of(dtype())));
    const std::uint64_t size_bytes =
        encode_exponents(dtype(), std::span(shifted_raw).subspan(shift),
                         std::span(shifted).subspan(shift), implementation());
    shifted.resize(shift + size_bytes);
    ASSERT_TRUE(std::ranges::equal(std::span(shifted).subspan(shift), coded));
    Bytes decoded(raw.size());
    ASSERT_TRUE(decode_exponents(dtype(), std::span(shifted).subspan(shift), decoded, options()));
    ASSERT_EQ(decoded, raw);
    ASSERT_EQ(decode(coded, raw.size(), shift), raw);
  }
}

TEST_P(ExponentCode, MakesGaussianWeightsSmaller) {
  const Bytes raw = testing::gaussian(dtype(), 4 * kExponentChunkElements);
  const double ratio = static_cast<double>(code(raw).size()) / static_cast<double>(raw.size());
  EXPECT_LE(ratio, dtype() == Dtype::kBf16 ? 0.685 : 0.8425);
}

TEST_P(ExponentCode, NeverTakesMoreThanRawAndHeads) {
  for (const NamedArray& array :
       testing::arrays_of_each_kind(dtype(), 3 * kExponentChunkElements)) {
    SCOPED_TRACE(array.name);
    EXPECT_LE(code(array.raw).size(), array.raw.size() + 3 * kExponentChunkHeadBytes);
  }
}

TEST_P(ExponentCode, FallsBackToRawChunkByChunk) {
  // Two chunks of weights around one of noise.
  Bytes raw = testing::gaussian(dtype(), 3 * kExponentChunkElements);
  const Bytes noise = testing::with_exponents(dtype(), kExponentChunkElements, [](auto& random) {
    return static_cast<unsigned>(random());
  });
  std::ranges::copy(noise, raw.begin() + std::ssize(noise));
  const Bytes coded = code(raw);
  const auto offsets = exponent_chunk_offsets(dtype(), coded, raw.size() / width_of(dtype()));
  ASSERT_TRUE(offsets);
  ASSERT_EQ(offsets->size(), 4U);
  EXPECT_LT((*offsets)[1], noise.size());
  EXPECT_EQ((*offsets)[2] - (*offsets)[1], noise.size() + kExponentChunkHeadBytes);
  EXPECT_LT((*offsets)[3] - (*offsets)[2], noise.size());
  EXPECT_EQ(decode(coded, raw.size()), raw);
}

TEST_P(ExponentCode, CodesInPiecesOfWholeChunksAsAtOnce) {
  const Bytes raw = testing::gaussian(dtype(), 5 * kExponentChunkElements + 100);
  const std::size_t piece_bytes = 2 * kExponentChunkElements * width_of(dtype());
  Bytes pieces;
  for (std::size_t at = 0; at < raw.size(); at += piece_bytes) {
    const Bytes piece = code(std::span(raw).subspan(at, std::min(piece_bytes, raw.size() - at)));
    pieces.insert(pieces.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(pieces, code(raw));
}

TEST_P(ExponentCode, DecodesAnyChunkAndTileAlone) {
  for (const NamedArray& array :
       testing::arrays_of_each_kind(dtype(), kExponentChunkElements + 2 * 2048 + 77)) {
    SCOPED_TRACE(array.name);
    const Bytes coded = code(array.raw);
    const std::size_t width = width_of(dtype());
    const auto offsets = exponent_chunk_offsets(dtype(), coded, array.raw.size() / width);
    ASSERT_TRUE(offsets);
    Bytes by_tiles;
    for (std::size_t chunk = 2; chunk-- > 0;) {
      const auto bytes =
          std::span(coded).subspan((*offsets)[chunk], (*offsets)[chunk + 1] - (*offsets)[chunk]);
      const auto size = read_exponent_chunk_size(dtype(), bytes);
      ASSERT_TRUE(size);
      EXPECT_EQ(size->coded_bytes, bytes.size());
      Bytes raw(size->element_count * width);
      ASSERT_TRUE(decode_exponent_chunk(dtype(), bytes, raw, options()));
      const auto expected =
          std::span(array.raw).subspan(chunk * kExponentChunkElements * width, raw.size());
      ASSERT_TRUE(std::ranges::equal(raw, expected));
      // The last tile first, each from a copy in which the others' codes are spoilt.
      const std::size_t tile_bytes = kExponentTileElements * width;
      for (std::size_t tile = (raw.size() + tile_bytes - 1) / tile_bytes; tile-- > 0;) {
        Bytes one(std::min(tile_bytes, raw.size() - tile * tile_bytes));
        ASSERT_TRUE(decode_exponent_tile(dtype(), bytes, tile, one, options()));
        ASSERT_TRUE(std::ranges::equal(one, expected.subspan(tile * tile_bytes, one.size())));
      }
    }
  }
}

TEST(ExponentImplementations, AreListedFastestFirstAndThePortableOneRuns) {
  const auto all = exponent_implementations();
  EXPECT_EQ(all.back().name, "portable");
  EXPECT_TRUE(all.back().is_supported);
  const auto first = std::ranges::find_if(all, &ExponentImplementation::is_supported);
  EXPECT_EQ(&best_exponent_implementation(), &*first);
}

TEST(ExponentImplementations, AreFoundByNameWhereTheCpuRunsThem) {
  for (const ExponentImplementation& implementation : exponent_implementations()) {
    const auto found = find_exponent_implementation(implementation.name);
    if (implementation.is_supported) {
      ASSERT_TRUE(found);
      EXPECT_EQ(*found, &implementation);
    } else {
      ASSERT_FALSE(found);
      EXPECT_EQ(found.error().code(), ErrorCode::kUnsupported);
      EXPECT_THAT(found.error().message(),
                  ::testing::HasSubstr(std::string(implementation.instructions)));
    }
  }
  const auto unknown = find_exponent_implementation("mmx");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), ErrorCode::kUsage);
  EXPECT_THAT(unknown.error().message(), ::testing::HasSubstr("portable"));
}

}  // namespace
}  // namespace trash_panda::format
