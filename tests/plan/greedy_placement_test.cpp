#include "greedy_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/units.h"

#include "plan/support/models.h"

// Expected placements were worked out by hand from the rules of the earlier library.
namespace trash_panda::plan {
namespace {

constexpr std::uint64_t kGB = 1'000'000'000;

std::string greedy(const ModelSummary& model, const Hardware& hardware,
                   const PlanRequest& request = {}) {
  std::string letters;
  for (const Tier tier : place_greedily(model, hardware, request)) {
    letters += format::tier_name(tier)[0];
  }
  return letters;
}

TEST(PlaceGreedily, KeepsAllResidentWhereItFits) {
  // 1 of base and 8 of blocks, 10.5 less 1.5 of headroom.
  EXPECT_EQ(greedy(equal_model(8, kGB, kGB), machine_with_gpu(64 * kGB, 10'500'000'000)),
            "gggggggg");
}

TEST(PlaceGreedily, FillsAPrefixBesideBufferAndStaging) {
  // Budget 8.5; base 1, buffer 1.3, staging 2: 4.2 are left.
  EXPECT_EQ(greedy(equal_model(8, kGB, kGB), machine_with_gpu(64 * kGB, 10 * kGB)), "ggggrrrr");
  ModelSummary uneven = model_of({kGB, kGB, 3 * kGB, kGB}, 0);
  // Budget 9.5 holds all 6.
  EXPECT_EQ(greedy(uneven, machine_with_gpu(64 * kGB, 11 * kGB)), "gggg");
  // Budget 12.5 less buffer 3.9 and staging 6 leaves 2.6: the third does not fit, none follows.
  uneven.blocks.push_back(uneven.blocks[2]);
  uneven.blocks.push_back(uneven.blocks[2]);
  uneven.blocks.push_back(uneven.blocks[3]);
  EXPECT_EQ(greedy(uneven, machine_with_gpu(64 * kGB, 14 * kGB)), "ggrrrrr");
}

TEST(PlaceGreedily, SpreadsTheFewestBlocksOnDisk) {
  // Without a GPU: 10 available less 1.28 reserved hold 8 of 12.
  Hardware hardware = machine(16 * kGB);
  hardware.ram_available_bytes = 10 * kGB;
  EXPECT_EQ(greedy(equal_model(12, kGB, 0), hardware), "rdrrdrrdrrdr");
}

TEST(PlaceGreedily, ReservesTwoStreamedBlocksWithAGpu) {
  Hardware hardware = machine_with_gpu(16 * kGB, 3 * kGB);
  hardware.ram_available_bytes = 10 * kGB;
  // 10 less 1.28 less 2 hold 6 of 12; no block fits into 1.5 of VRAM.
  EXPECT_EQ(greedy(equal_model(12, kGB, 0), hardware), "rdrdrdrdrdrd");
}

TEST(PlaceGreedily, HonoursItsOptions) {
  PlanRequest request;
  request.max_vram_bytes = 10 * kGB;
  request.activation_vram_bytes = kGB;
  // Headroom 1 and half a GiB instead of 1.5: 8.46 less 4.3 leaves 4.16.
  EXPECT_EQ(greedy(equal_model(8, kGB, kGB), machine_with_gpu(64 * kGB, 10 * kGB), request),
            "ggggrrrr");
  request.max_ram_bytes = 5 * kGB;
  request.min_free_ram_bytes = kGB;
  // 5 less 1 less 2 hold 2 of 4.
  EXPECT_EQ(greedy(equal_model(8, kGB, kGB), machine_with_gpu(64 * kGB, 10 * kGB), request),
            "ggggrdrd");
  request.allow_disk = false;
  EXPECT_EQ(greedy(equal_model(8, kGB, kGB), machine_with_gpu(64 * kGB, 10 * kGB), request),
            "ggggrrrr");
}

}  // namespace
}  // namespace trash_panda::plan
