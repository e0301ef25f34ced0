#include "scale_fit.h"

#include <gtest/gtest.h>

namespace trash_panda::format {
namespace {

TEST(ScaleShapeFits, TensorTakesAScalarOnly) {
  EXPECT_TRUE(scale_shape_fits({4, 6}, {}, Granularity::kTensor, {}));
  EXPECT_TRUE(scale_shape_fits({}, {}, Granularity::kTensor, {}));
  EXPECT_FALSE(scale_shape_fits({4, 6}, {1}, Granularity::kTensor, {}));
  EXPECT_FALSE(scale_shape_fits({4, 6}, {}, Granularity::kTensor, {2, 2}));
}

TEST(ScaleShapeFits, RowTakesTheFirstDimensionsThenOnes) {
  EXPECT_TRUE(scale_shape_fits({4, 6}, {4, 1}, Granularity::kRow, {}));
  EXPECT_TRUE(scale_shape_fits({8, 4, 6}, {8, 1, 1}, Granularity::kRow, {}));
  EXPECT_TRUE(scale_shape_fits({8, 4, 6}, {8, 4, 1}, Granularity::kRow, {}));
  EXPECT_TRUE(scale_shape_fits({4, 6, 3, 3}, {4, 1, 1, 1}, Granularity::kRow, {}));
  EXPECT_FALSE(scale_shape_fits({4, 6}, {4}, Granularity::kRow, {}));
  EXPECT_FALSE(scale_shape_fits({4, 6}, {1, 6}, Granularity::kRow, {}));
  EXPECT_FALSE(scale_shape_fits({4, 6}, {5, 1}, Granularity::kRow, {}));
  EXPECT_FALSE(scale_shape_fits({8, 4, 6}, {8, 1, 6}, Granularity::kRow, {}));
}

TEST(ScaleShapeFits, ColumnTakesLeadingDimensionsThenOneRow) {
  EXPECT_TRUE(scale_shape_fits({4, 6}, {1, 6}, Granularity::kColumn, {}));
  EXPECT_TRUE(scale_shape_fits({8, 4, 6}, {8, 1, 6}, Granularity::kColumn, {}));
  EXPECT_FALSE(scale_shape_fits({4, 6}, {4, 6}, Granularity::kColumn, {}));
  EXPECT_FALSE(scale_shape_fits({6}, {6}, Granularity::kColumn, {}));
}

TEST(ScaleShapeFits, BlockRoundsUpBothWays) {
  EXPECT_TRUE(scale_shape_fits({4, 6}, {2, 2}, Granularity::kBlock, {2, 3}));
  EXPECT_TRUE(scale_shape_fits({5, 7}, {3, 3}, Granularity::kBlock, {2, 3}));
  EXPECT_TRUE(scale_shape_fits({8, 5, 7}, {8, 3, 3}, Granularity::kBlock, {2, 3}));
  EXPECT_FALSE(scale_shape_fits({5, 7}, {2, 2}, Granularity::kBlock, {2, 3}));
  EXPECT_FALSE(scale_shape_fits({4, 6}, {2, 2}, Granularity::kBlock, {}));
  EXPECT_FALSE(scale_shape_fits({4, 6}, {2, 2}, Granularity::kBlock, {0, 3}));
  EXPECT_FALSE(scale_shape_fits({4, 6}, {2, 2}, Granularity::kBlock, {2, 3, 1}));
}

TEST(ScaleDtypeFits, ExponentCodesBelongToGroupsOf32Only) {
  for (const Granularity granularity :
       {Granularity::kTensor, Granularity::kRow, Granularity::kColumn}) {
    EXPECT_TRUE(scale_dtype_fits(Dtype::kF32, granularity, {}));
    EXPECT_FALSE(scale_dtype_fits(Dtype::kF8E8M0, granularity, {}));
  }
  EXPECT_TRUE(scale_dtype_fits(Dtype::kF8E8M0, Granularity::kBlock, {1, 32}));
  EXPECT_TRUE(scale_dtype_fits(Dtype::kF32, Granularity::kBlock, {1, 32}));
  EXPECT_FALSE(scale_dtype_fits(Dtype::kU8, Granularity::kBlock, {1, 32}));
  EXPECT_FALSE(scale_dtype_fits(Dtype::kF8E8M0, Granularity::kBlock, {32, 1}));
  EXPECT_FALSE(scale_dtype_fits(Dtype::kF8E8M0, Granularity::kBlock, {1, 16}));
  EXPECT_FALSE(scale_dtype_fits(Dtype::kF8E8M0, Granularity::kBlock, {128, 128}));
}

}  // namespace
}  // namespace trash_panda::format
