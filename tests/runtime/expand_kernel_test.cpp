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
#include "expand/scale_grid.h"

// Runs the source of the CUDA kernels on the CPU, with threads one after the other, and compares it
// bit for bit with expand().

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Granularity;
using format::Shape;

constexpr std::uint64_t kThreads = 96;  // Divides none of the sizes: the last round is partial.

template <class Source, class Target>
void launch(const cuda::ExpandArguments& arguments) {
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    cuda::expand_elements<Source, Target>(arguments, thread, kThreads);
  }
}

template <class Source>
void launch_to(Dtype to, const cuda::ExpandArguments& arguments) {
  switch (to) {
    case Dtype::kBf16:
      return launch<Source, cuda::Bf16Target>(arguments);
    case Dtype::kF16:
      return launch<Source, cuda::F16Target>(arguments);
    default:
      return launch<Source, cuda::F32Target>(arguments);
  }
}

void launch_from(Dtype from, Dtype to, const cuda::ExpandArguments& arguments) {
  switch (from) {
    case Dtype::kF8E4M3:
      return launch_to<cuda::Fp8Source<cuda::kE4M3>>(to, arguments);
    case Dtype::kF8E5M2:
      return launch_to<cuda::Fp8Source<cuda::kE5M2>>(to, arguments);
    case Dtype::kF8E4M3Fnuz:
      return launch_to<cuda::Fp8Source<cuda::kE4M3Fnuz>>(to, arguments);
    case Dtype::kF8E5M2Fnuz:
      return launch_to<cuda::Fp8Source<cuda::kE5M2Fnuz>>(to, arguments);
    case Dtype::kBf16:
      return launch_to<cuda::Bf16Source>(to, arguments);
    case Dtype::kF16:
      return launch_to<cuda::F16Source>(to, arguments);
    case Dtype::kF32:
      return launch_to<cuda::F32Source>(to, arguments);
    default:
      return launch_to<cuda::F64Source>(to, arguments);
  }
}

std::vector<std::byte> run_kernel(const ExpandSource& source, const ScaleForm& form, Dtype to) {
  const std::uint64_t elements = *element_count(*source.shape);
  std::vector<std::byte> target(elements * format::dtype_bits(to) / 8, std::byte{0xa5});
  const std::optional<ScaleGrid> grid = make_scale_grid(*source.shape, form);
  EXPECT_TRUE(grid);
  launch_from(source.dtype, to,
              {.payload = source.payload.data(),
               .scale = {.floats = source.scale.empty() ? nullptr : source.scale.data(),
                         .codes = source.scale_codes.empty() ? nullptr : source.scale_codes.data()},
               .target = target.data(),
               .element_count = elements,
               .grid = *grid});
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

TEST(ExpandKernelCast, EqualsExpandBitForBit) {
  const Shape shape = {37, 41};
  const std::uint64_t elements = *element_count(shape);
  std::mt19937_64 random(5);
  for (const Dtype from : {Dtype::kBf16, Dtype::kF16, Dtype::kF32, Dtype::kF64}) {
    const std::uint64_t width = format::dtype_bits(from) / 8;
    std::vector<std::byte> payload(elements * width);
    for (std::uint64_t at = 0; at < elements; ++at) {
      const std::uint64_t bits = random();
      std::memcpy(payload.data() + at * width, &bits, width);
    }
    for (const Dtype to : {Dtype::kBf16, Dtype::kF16, Dtype::kF32}) {
      const ExpandSource source = {.dtype = from, .shape = &shape, .payload = payload, .scale = {}};
      std::vector<std::byte> expected(elements * format::dtype_bits(to) / 8);
      expand(source, to, expected);
      EXPECT_TRUE(run_kernel(source, {0, Granularity::kTensor, 0, 0}, to) == expected)
          << format::dtype_name(from) << " to " << format::dtype_name(to);
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
                      KernelCase{"Groups", {5, 96}, {15, Granularity::kBlock, 1, 32}},
                      KernelCase{"WholeRuns", {24, 64}, {24, Granularity::kRow, 0, 0}},
                      KernelCase{"WholeRunsOfExperts", {3, 8, 64}, {24, Granularity::kRow, 0, 0}},
                      KernelCase{"ColumnOfWholeRuns", {8, 64}, {64, Granularity::kColumn, 0, 0}}),
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
