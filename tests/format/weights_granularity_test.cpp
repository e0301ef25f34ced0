#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "scale_granularity.h"

namespace trash_panda::format {
namespace {

constexpr TileShape kTile{128, 128};

ScaleHints tiles(TileShape tile) {
  return {.tiles = {tile}, .tiles_only = true};
}

/// "row [24, 1]", "block [2, 2] of [64, 128]", "cropped block …", or "none".
std::string fit(const Shape& weight, const Shape& scale, const ScaleHints& hints = {}) {
  const auto found = fit_scale(weight, scale, hints);
  if (!found) {
    return "none";
  }
  std::string text = found->is_cropped ? "cropped " : "";
  text += std::string(granularity_name(found->granularity)) + " " + to_string(found->shape);
  return found->block_shape.empty() ? text : text + " of " + to_string(found->block_shape);
}

TEST(FitScale, TakesOneElementForTheWholeWeight) {
  EXPECT_EQ(fit({24, 40}, {}), "tensor []");
  EXPECT_EQ(fit({24, 40}, {1}), "tensor []");
  EXPECT_EQ(fit({24, 40}, {1, 1}), "tensor []");
  EXPECT_EQ(fit({6, 4, 3, 3}, {}), "tensor []");
  EXPECT_EQ(fit({8}, {1}), "tensor []");
}

TEST(FitScale, CountsVectorsAlongTheFirstDimension) {
  EXPECT_EQ(fit({24, 40}, {24}), "row [24, 1]");
  EXPECT_EQ(fit({24, 40}, {24, 1}), "row [24, 1]");
  EXPECT_EQ(fit({32, 32}, {32}), "row [32, 1]");
  EXPECT_EQ(fit({24}, {24}), "row [24]");
}

TEST(FitScale, RefusesVectorsOfAnotherLength) {
  EXPECT_EQ(fit({24, 40}, {40}), "none");
  EXPECT_EQ(fit({24, 40}, {7}), "none");
  EXPECT_EQ(fit({24, 16}, {3}), "none");  // Three fused projections, whose heights nobody tells.
  EXPECT_EQ(fit({24, 40}, {23, 1}), "none");
  EXPECT_EQ(fit({24, 40}, {25, 1}), "none");
}

TEST(FitScale, TakesColumnsOnlyWhenTheyAreSpelledOut) {
  EXPECT_EQ(fit({24, 40}, {1, 40}), "column [1, 40]");
  EXPECT_EQ(fit({2, 24, 80}, {2, 1, 80}), "column [2, 1, 80]");
  EXPECT_EQ(fit({24, 40}, {1, 24}), "none");
}

TEST(FitScale, SpreadsOverExpertsAndConvolutions) {
  EXPECT_EQ(fit({3, 8, 16}, {3}), "row [3, 1, 1]");
  EXPECT_EQ(fit({3, 8, 16}, {3, 1, 1}), "row [3, 1, 1]");
  EXPECT_EQ(fit({3, 8, 16}, {3, 8}), "row [3, 8, 1]");
  EXPECT_EQ(fit({3, 8, 16}, {3, 8, 1}), "row [3, 8, 1]");
  EXPECT_EQ(fit({6, 4, 3, 3}, {6, 1, 1, 1}), "row [6, 1, 1, 1]");
  EXPECT_EQ(fit({2, 64, 136}, {2, 1, 2}, tiles(kTile)), "block [2, 1, 2] of [128, 128]");
}

TEST(FitScale, TakesTheLastAxisOfFbgemmStacksEvenWhenSquare) {
  const ScaleHints fbgemm{.tiles = {}, .stack_scales_are_last_axis = true};
  EXPECT_EQ(fit({2, 40, 24}, {2, 24, 1}, fbgemm), "column [2, 1, 24]");
  EXPECT_EQ(fit({2, 24, 24}, {2, 24, 1}, fbgemm), "column [2, 1, 24]");
  EXPECT_EQ(fit({2, 24, 24}, {2, 24, 1}), "row [2, 24, 1]");
  EXPECT_EQ(fit({2, 40, 24}, {2, 40, 1}, fbgemm), "none");
  EXPECT_EQ(fit({2, 40, 24}, {2, 24, 1}), "none");
  EXPECT_EQ(fit({24, 40}, {24, 1}, fbgemm), "row [24, 1]");
}

TEST(FitScale, RoundsTheGridUp) {
  EXPECT_EQ(fit({576, 7168}, {5, 56}, tiles(kTile)), "block [5, 56] of [128, 128]");
  EXPECT_EQ(fit({576, 7168}, {4, 56}, tiles(kTile)), "none");
  EXPECT_EQ(fit({128, 256}, {1, 2}, tiles(kTile)), "block [1, 2] of [128, 128]");
  EXPECT_EQ(fit({129, 256}, {1, 2}, tiles(kTile)), "none");
  EXPECT_EQ(fit({100, 200}, {2, 2}, tiles({64, 128})), "block [2, 2] of [64, 128]");
}

TEST(FitScale, KnowsTilesOf128WithoutAConfiguration) {
  EXPECT_EQ(fit({160, 72}, {2, 1}), "block [2, 1] of [128, 128]");
  EXPECT_EQ(fit({576, 7168}, {5, 56}), "block [5, 56] of [128, 128]");
  EXPECT_EQ(fit({100, 200}, {2, 2}), "none");
}

TEST(FitScale, GuessesGroupsOnlyOfKnownSizes) {
  EXPECT_EQ(fit({16, 96}, {16, 3}), "block [16, 3] of [1, 32]");
  EXPECT_EQ(fit({16, 96}, {16, 2}), "none");   // Groups of 48.
  EXPECT_EQ(fit({16, 96}, {16, 12}), "none");  // Groups of 8.
  EXPECT_EQ(fit({16, 96}, {16, 2}, tiles({1, 48})), "block [16, 2] of [1, 48]");
}

TEST(FitScale, TakesAScalePerElement) {
  EXPECT_EQ(fit({24, 40}, {24, 40}), "block [24, 40] of [1, 1]");
}

TEST(FitScale, HoldsASingleTileToItsGridWhereTilesAreTheRule) {
  EXPECT_EQ(fit({128, 128}, {1, 1}, tiles(kTile)), "block [1, 1] of [128, 128]");
  EXPECT_EQ(fit({300, 128}, {1, 1}, tiles(kTile)), "none");
  EXPECT_EQ(fit({300, 128}, {}, tiles(kTile)), "tensor []");
}

TEST(FitScale, CropsPaddedGridsOfAConfiguredTile) {
  EXPECT_EQ(fit({130, 100}, {3, 1}, tiles(kTile)), "cropped block [2, 1] of [128, 128]");
  EXPECT_EQ(fit({130, 100}, {8, 8}, tiles(kTile)), "cropped block [2, 1] of [128, 128]");
  EXPECT_EQ(fit({130, 100}, {9, 1}, tiles(kTile)), "none");
  EXPECT_EQ(fit({130, 100}, {3, 1}), "none");
}

TEST(FitScale, SqueezesModeloptGrids) {
  EXPECT_EQ(fit({128, 256}, {1, 1, 2, 1}), "block [1, 2] of [128, 128]");
  EXPECT_EQ(fit({256, 256}, {2, 1, 2, 1}, tiles(kTile)), "block [2, 2] of [128, 128]");
  EXPECT_EQ(fit({128, 256}, {1, 2, 1, 1}), "none");
}

TEST(FitScale, RefusesMoreDimensionsThanTheWeightHas) {
  EXPECT_EQ(fit({24, 40}, {1, 24, 1}), "none");
  EXPECT_EQ(fit({8}, {8, 2}), "none");
}

}  // namespace
}  // namespace trash_panda::format
