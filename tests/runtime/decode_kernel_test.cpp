// Runs the source of the CUDA decoders on the CPU, a warp after the other, and compares it bit for
// bit with decode_exponents(), whatever the code holds.

#include "cuda/decode_kernel.h"

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/runtime/expand.h"

#include "chunk_table.h"
#include "format/support/exponent_samples.h"
#include "format/support/sample_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using testing::Bytes;
using testing::encode;
using testing::must;

constexpr std::uint64_t kWarps = 5;  // Divides no number of tiles: some warps take one more.

/// Memory on a multiple of 64 bytes, as on a device.
class AlignedCopy {
 public:
  explicit AlignedCopy(std::span<const std::byte> bytes)
      : memory_(must(AlignedBuffer::create(std::max<std::size_t>(bytes.size(), 1)))),
        size_(bytes.size()) {
    std::ranges::copy(bytes, memory_.span().begin());
  }
  [[nodiscard]] std::span<std::byte> bytes() { return memory_.span().first(size_); }

 private:
  AlignedBuffer memory_;
  std::size_t size_;
};

/// An extent of one coded tensor.
struct CodedTensor {
  CodedTensor(Dtype dtype, const Bytes& coded, std::uint64_t count) {
    tensor.name = "w";
    tensor.dtype = dtype;
    tensor.shape = {count};
    tensor.size_bytes = count * testing::width_of(dtype);
    tensor.stored_bytes = coded.size();
    tensor.coding = format::TensorCoding::kExponent;
    layout.steps.push_back({.stored = &tensor,
                            .scale = nullptr,
                            .dtype = dtype,
                            .size_bytes = tensor.size_bytes,
                            .is_in_place = false,
                            .compute_offset_bytes = 0});
  }
  CodedTensor(const CodedTensor&) = delete;
  CodedTensor& operator=(const CodedTensor&) = delete;

  format::PackedTensor tensor = {};
  TensorLayout layout;
};

template <class Code, class Target>
void decode_all(const cuda::DecodeArguments& arguments) {
  for (std::uint64_t warp = 0; warp < kWarps; ++warp) {
    cuda::decode_tiles<Code, Target>(arguments, warp, kWarps);
  }
}

void decode_all(Dtype from, Dtype to, const cuda::DecodeArguments& arguments) {
  if (from == Dtype::kBf16) {
    to == Dtype::kBf16  ? decode_all<cuda::Bf16Code, cuda::Verbatim>(arguments)
    : to == Dtype::kF16 ? decode_all<cuda::Bf16Code, cuda::F16Target>(arguments)
                        : decode_all<cuda::Bf16Code, cuda::F32Target>(arguments);
  } else {
    to == Dtype::kBf16  ? decode_all<cuda::F32Code, cuda::Bf16Target>(arguments)
    : to == Dtype::kF16 ? decode_all<cuda::F32Code, cuda::F16Target>(arguments)
                        : decode_all<cuda::F32Code, cuda::Verbatim>(arguments);
  }
}

/// @return Nothing when the code is refused, by the CPU or by the kernel.
std::optional<Bytes> run_decoder(Dtype from, Dtype to, const Bytes& coded, std::uint64_t count) {
  AlignedCopy copy(coded);
  const CodedTensor tensor(from, coded, count);
  const Result<std::vector<std::uint32_t>> chunks = make_chunk_table(tensor.layout, copy.bytes());
  if (!chunks) {
    EXPECT_EQ(chunks.error().code(), ErrorCode::kCorrupt);
    return std::nullopt;
  }
  constexpr std::size_t kGuardBytes = 64;
  AlignedCopy target(Bytes(count * testing::width_of(to) + kGuardBytes, std::byte{0xa5}));
  std::uint32_t damaged = 0;
  decode_all(from, to,
             {.coded = reinterpret_cast<const std::uint8_t*>(copy.bytes().data()),
              .chunk_begins = chunks->data(),
              .target = target.bytes().data(),
              .element_count = count,
              .damaged = &damaged});
  EXPECT_EQ(Bytes(target.bytes().end() - kGuardBytes, target.bytes().end()),
            Bytes(kGuardBytes, std::byte{0xa5}));
  if (damaged != 0) {
    return std::nullopt;
  }
  return Bytes(target.bytes().begin(), target.bytes().end() - kGuardBytes);
}

class DecodeKernel : public ::testing::TestWithParam<Dtype> {};

INSTANTIATE_TEST_SUITE_P(, DecodeKernel, ::testing::Values(Dtype::kBf16, Dtype::kF32),
                         [](const ::testing::TestParamInfo<Dtype>& one) {
                           return std::string(dtype_name(one.param));
                         });

TEST_P(DecodeKernel, GivesTheBitsThatWereCoded) {
  for (const std::size_t count : {1UL, 8UL, 63UL, 64UL, 2047UL, 2049UL, 65'536UL, 200'003UL}) {
    for (const testing::NamedArray& array : testing::arrays_of_each_kind(GetParam(), count)) {
      const Bytes coded = encode(GetParam(), array.raw, format::best_exponent_implementation());
      EXPECT_TRUE(run_decoder(GetParam(), GetParam(), coded, count) == array.raw)
          << array.name << ", " << count << " elements";
    }
  }
}

TEST_P(DecodeKernel, RoundsAsExpandDoes) {
  constexpr std::size_t kCount = 70'001;
  const format::Shape shape = {kCount};
  for (const Dtype to : {Dtype::kBf16, Dtype::kF16, Dtype::kF32}) {
    if (to == GetParam()) {
      continue;
    }
    const Bytes raw = testing::gaussian(GetParam(), kCount);
    Bytes expected(kCount * testing::width_of(to));
    expand({.dtype = GetParam(), .shape = &shape, .payload = raw, .scale = {}}, to, expected);
    const Bytes coded = encode(GetParam(), raw, format::best_exponent_implementation());
    EXPECT_TRUE(run_decoder(GetParam(), to, coded, kCount) == expected) << dtype_name(to);
  }
}

TEST_P(DecodeKernel, RefusesWhatTheCpuRefuses) {
  constexpr std::size_t kCount = 2048 + 300;
  const Bytes raw = testing::gaussian(GetParam(), kCount);
  const Bytes coded = encode(GetParam(), raw, format::best_exponent_implementation());
  std::mt19937 random(5);
  std::array<int, 2> counts = {};
  for (int round = 0; round < 400; ++round) {
    Bytes damaged = coded;
    for (auto left = 1 + random() % 8; left > 0; --left) {
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    }
    Bytes decoded(raw.size());
    const bool is_refused = !decode_exponents(GetParam(), damaged, decoded);
    const std::optional<Bytes> found = run_decoder(GetParam(), GetParam(), damaged, kCount);
    ASSERT_EQ(!found, is_refused) << round;
    ASSERT_TRUE(is_refused || *found == decoded) << round;
    ++counts[is_refused ? 1 : 0];
  }
  EXPECT_GT(counts[0], 25);
  EXPECT_GT(counts[1], 25);
}

TEST_P(DecodeKernel, CodesThatAskForMoreThanThereIsAreRefused) {
  constexpr std::size_t kCount = 4096;
  const Bytes coded = encode(GetParam(), testing::gaussian(GetParam(), kCount),
                             format::best_exponent_implementation());
  for (const std::size_t begin : {64 + kCount, 64 + kCount + kCount / 4}) {
    Bytes damaged = coded;
    std::fill(damaged.begin() + static_cast<std::ptrdiff_t>(begin), damaged.end(), std::byte{0xff});
    EXPECT_FALSE(run_decoder(GetParam(), GetParam(), damaged, kCount)) << begin;
  }
}

TEST(ChunkTable, RefusesWhatNoDeviceDecodes) {
  const Bytes coded = encode(Dtype::kBf16, testing::gaussian(Dtype::kBf16, 100),
                             format::best_exponent_implementation());
  CodedTensor zstd(Dtype::kBf16, coded, 100);
  zstd.tensor.coding = format::TensorCoding::kZstd;
  const auto refused = make_chunk_table(zstd.layout, coded);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message().find("zstd"), std::string::npos);
  CodedTensor elsewhere(Dtype::kBf16, coded, 100);
  elsewhere.tensor.stored_offset_bytes = 8;
  EXPECT_EQ(make_chunk_table(elsewhere.layout, coded).error().code(), ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace trash_panda::runtime
