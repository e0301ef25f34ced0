#include "trash_panda/runtime/array_shape.h"

#include <gtest/gtest.h>

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Shape;

Result<Shape> shape_of(Dtype dtype, const Shape& shape, std::uint64_t size_bytes = 0) {
  return array_shape(
      {.name = "w", .dtype = dtype, .shape = &shape, .data = nullptr, .size_bytes = size_bytes});
}

TEST(ArrayShape, IsTheShapeWhereElementsAreWholeBytes) {
  for (const Dtype dtype : {Dtype::kBool, Dtype::kF8E4M3, Dtype::kBf16, Dtype::kC64}) {
    EXPECT_EQ(shape_of(dtype, {3, 5}), Shape({3, 5}));
    EXPECT_EQ(shape_of(dtype, {}), Shape());
  }
}

TEST(ArrayShape, HalvesTheColumnsOfPackedFourBitFloats) {
  EXPECT_EQ(shape_of(Dtype::kF4, {3, 6}), Shape({3, 3}));
  EXPECT_EQ(shape_of(Dtype::kF4, {4, 0}), Shape({4, 0}));
  for (const Shape& shape : {Shape{6, 3}, Shape{}}) {
    const Result<Shape> refused = shape_of(Dtype::kF4, shape);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
  }
  EXPECT_EQ(shape_of(Dtype::kF4, {6, 3}).error().message(),
            "tensor w of packed 4-bit floats has shape [6, 3]: its last dimension is odd, which no "
            "array of whole bytes can express");
}

TEST(ArrayShape, HasSixBitFloatsAsBytes) {
  EXPECT_EQ(shape_of(Dtype::kF6E2M3, {2, 4}, 6), Shape{6});
  EXPECT_EQ(shape_of(Dtype::kF6E3M2, {8}, 6), Shape{6});
}

}  // namespace
}  // namespace trash_panda::runtime
