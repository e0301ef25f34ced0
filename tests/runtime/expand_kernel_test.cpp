#include "cuda/expand_kernel.h"

#include <array>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trash_panda/runtime/expand.h"
#include "trash_panda/runtime/features.h"

#include "cuda/kernel_image.h"
#include "scale_grid.h"

// Runs the source of the CUDA kernels on the CPU, with threads one after the other, and compares it
// bit for bit with expand().

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Granularity;
using format::Shape;

constexpr std::uint64_t kThreads = 96;  // Divides none of the sizes: the last round is partial.

cuda::Fp8Format kernel_format(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF8E4M3:
      return cuda::kE4M3;
    case Dtype::kF8E5M2:
      return cuda::kE5M2;
    case Dtype::kF8E4M3Fnuz:
      return cuda::kE4M3Fnuz;
    default:
      return cuda::kE5M2Fnuz;
  }
}

template <class Target>
void launch(cuda::Fp8Format format, const cuda::ExpandFp8Arguments& arguments) {
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    cuda::expand_fp8_elements<Target>(format, arguments, thread, kThreads);
  }
}

std::vector<std::byte> run_kernel(const ExpandSource& source, const ScaleForm& form, Dtype to) {
  std::vector<std::byte> target(source.payload.size() * format::dtype_bits(to) / 8,
                                std::byte{0xa5});
  const std::optional<ScaleGrid> grid = make_scale_grid(*source.shape, form);
  EXPECT_TRUE(grid);
  const cuda::ExpandFp8Arguments arguments = {
      .payload = reinterpret_cast<const std::uint8_t*>(source.payload.data()),
      .scale = {.floats = source.scale.empty() ? nullptr : source.scale.data(),
                .codes = source.scale_codes.empty() ? nullptr : source.scale_codes.data()},
      .target = target.data(),
      .element_count = source.payload.size(),
      .grid = *grid};
  switch (to) {
    case Dtype::kBf16:
      launch<cuda::Bf16Target>(kernel_format(source.dtype), arguments);
      break;
    case Dtype::kF16:
      launch<cuda::F16Target>(kernel_format(source.dtype), arguments);
      break;
    default:
      launch<cuda::F32Target>(kernel_format(source.dtype), arguments);
      break;
  }
  return target;
}

struct KernelCase {
  std::string name;
  Shape shape;
  ScaleForm form;
};

class ExpandKernel : public ::testing::TestWithParam<KernelCase> {};

TEST_P(ExpandKernel, EqualsExpandBitForBit) {
  const KernelCase& tested = GetParam();
  const std::uint64_t elements = *element_count(tested.shape);
  std::mt19937 random(3);
  std::vector<std::byte> payload(elements);
  for (std::byte& code : payload) {
    code = static_cast<std::byte>(random());
  }
  // Every kind of scale, NaN, infinities and subnormal numbers among them.
  std::vector<float> scale(tested.form.count);
  for (std::size_t at = 0; at < scale.size(); ++at) {
    const auto bits = static_cast<std::uint32_t>(random());
    std::memcpy(&scale[at], &bits, sizeof bits);
    if (at % 3 == 0) {
      scale[at] = 0.02F * static_cast<float>(at + 1);
    }
  }
  // Without 255: which of two NaN a product keeps is the compiler's choice.
  std::vector<std::uint8_t> scale_codes(tested.form.count);
  for (std::size_t at = 0; at < scale_codes.size(); ++at) {
    scale_codes[at] = static_cast<std::uint8_t>(at % 5 == 0 ? at / 5 : 120 + at % 12);
  }
  for (const Dtype from :
       {Dtype::kF8E4M3, Dtype::kF8E5M2, Dtype::kF8E4M3Fnuz, Dtype::kF8E5M2Fnuz}) {
    for (const Dtype to : {Dtype::kBf16, Dtype::kF16, Dtype::kF32}) {
      ExpandSource source = {.dtype = from,
                             .shape = &tested.shape,
                             .payload = payload,
                             .scale = scale,
                             .granularity = tested.form.granularity,
                             .block_rows = tested.form.block_rows,
                             .block_columns = tested.form.block_columns};
      std::vector<std::byte> expected(elements * format::dtype_bits(to) / 8);
      expand(source, to, expected);
      EXPECT_TRUE(run_kernel(source, tested.form, to) == expected)
          << format::dtype_name(from) << " to " << format::dtype_name(to);
      source.scale = {};
      source.scale_codes = scale_codes;
      expand(source, to, expected);
      EXPECT_TRUE(run_kernel(source, tested.form, to) == expected)
          << format::dtype_name(from) << " to " << format::dtype_name(to) << ", exponent codes";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ExpandKernel,
    ::testing::Values(KernelCase{"NoScale", {37, 41}, {0, Granularity::kTensor, 0, 0}},
                      KernelCase{"Tensor", {37, 41}, {1, Granularity::kTensor, 0, 0}},
                      KernelCase{"TensorLong", {200, 300}, {1, Granularity::kTensor, 0, 0}},
                      KernelCase{"Row", {37, 41}, {37, Granularity::kRow, 0, 0}},
                      KernelCase{"RowOfExperts", {3, 7, 41}, {21, Granularity::kRow, 0, 0}},
                      KernelCase{"Convolution", {8, 3, 3, 3}, {8, Granularity::kRow, 0, 0}},
                      KernelCase{"Column", {37, 41}, {41, Granularity::kColumn, 0, 0}},
                      KernelCase{"ColumnOfExperts", {3, 7, 41}, {123, Granularity::kColumn, 0, 0}},
                      KernelCase{"Block128", {300, 200}, {6, Granularity::kBlock, 128, 128}},
                      KernelCase{"BlockOfExperts", {2, 9, 13}, {30, Granularity::kBlock, 4, 3}},
                      KernelCase{"Groups", {5, 96}, {15, Granularity::kBlock, 1, 32}}),
    [](const auto& tested) { return tested.param.name; });

TEST(KernelImage, IsAFatBinaryWhenEmbedded) {
  const std::span<const std::byte> image = cuda::kernel_image();
  EXPECT_EQ(cuda_kernels_embedded(), !image.empty());
  if (image.empty()) {
    GTEST_SKIP() << "built without nvcc: no kernels to look at";
  }
  // Magic number of fat binaries, little-endian 0xba55ed50, as fatbinary_section.h has it.
  const std::array<std::byte, 4> magic = {std::byte{0x50}, std::byte{0xed}, std::byte{0x55},
                                          std::byte{0xba}};
  ASSERT_GT(image.size(), magic.size());
  EXPECT_EQ(std::memcmp(image.data(), magic.data(), magic.size()), 0);
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  EXPECT_NE(text.find("tp_expand_e4m3_bf16"), std::string_view::npos);
}

}  // namespace
}  // namespace trash_panda::runtime
