#include "trash_panda/plan/pack_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/plan_toml.h"

#include "model_summary.h"
#include "pack_layout_tensors.h"
#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// 0 embed (16 MiB), 1 small head, 2–5 layers in the order of the file, 6 marker.
struct Model {
  Model() {
    names.add("embed.weight", {8 << 10, 1 << 10});
    names.add("head.weight", {(8 << 20) - 1});
    names.add("layers.1.attn.weight").add("layers.1.norm.weight");
    names.add("layers.0.attn.weight").add("layers.0.norm.weight");
    names.add("scaled_fp8", {2});
    weights = plain_weights(names.tensors());
    weights.weights.pop_back();
    weights.ignored.push_back(6);
    blocks = find_blocks(names.tensors()).value();
    plan = make_plan(summarize_tensors(names.tensors(), weights, blocks, "bf16"),
                     machine(16 * kGiB), {})
               .value();
  }

  [[nodiscard]] Result<format::PackLayout> lay_out() const {
    return make_pack_layout(plan, names.tensors(), weights, blocks);
  }

  Names names;
  format::WeightTable weights;
  BlockMap blocks;
  Plan plan;
};

TEST(MakePackLayout, PutsBaseFirstAndBlocksInExecutionOrder) {
  Model model;
  model.plan.blocks[1].tier = Tier::kDisk;
  const format::PackLayout layout = model.lay_out().value();
  ASSERT_EQ(layout.extents.size(), 4U);
  EXPECT_EQ(layout.extents[0].name, "embed.weight");
  EXPECT_EQ(layout.extents[0].tier, Tier::kBase);
  EXPECT_THAT(layout.extents[0].weights, ElementsAre(0));
  EXPECT_EQ(layout.extents[1].name, "base");
  EXPECT_THAT(layout.extents[1].weights, ElementsAre(1));
  EXPECT_EQ(layout.extents[2].name, "layers.0");
  EXPECT_EQ(layout.extents[2].tier, Tier::kRam);
  EXPECT_THAT(layout.extents[2].weights, ElementsAre(4, 5));
  EXPECT_EQ(layout.extents[3].name, "layers.1");
  EXPECT_EQ(layout.extents[3].tier, Tier::kDisk);
  EXPECT_THAT(layout.extents[3].weights, ElementsAre(2, 3));
  EXPECT_EQ(layout.plan_toml, write_plan_toml(model.plan));
}

TEST(MakePackLayout, PlacesScalesWithTheirWeight) {
  Names names;
  names.add_list("layers.", 2, {"attn.weight", "attn.weight_scale"});
  format::WeightTable weights;
  for (const std::size_t index : {0U, 2U}) {
    format::WeightScale scale{};
    scale.tensor_index = index + 1;
    weights.weights.push_back({names.tensors()[index].name, index, format::Dtype::kBf16, scale});
  }
  const BlockMap blocks = find_blocks(names.tensors()).value();
  const Plan plan =
      make_plan(summarize_tensors(names.tensors(), weights, blocks, "bf16"), machine(16 * kGiB), {})
          .value();
  const format::PackLayout layout =
      make_pack_layout(plan, names.tensors(), weights, blocks).value();
  ASSERT_EQ(layout.extents.size(), 2U);
  EXPECT_THAT(layout.extents[0].weights, ElementsAre(0));
  EXPECT_THAT(layout.extents[1].weights, ElementsAre(1));
}

TEST(MakePackLayout, RefusesAPlanOfAnotherCheckpoint) {
  const auto message = [](const Model& model) {
    const auto layout = model.lay_out();
    EXPECT_FALSE(layout);
    EXPECT_EQ(layout.error().code(), ErrorCode::kStale);
    EXPECT_THAT(layout.error().hint(), HasSubstr("trash-panda plan"));
    return layout.error().message();
  };
  Model fewer;
  fewer.plan.blocks.pop_back();
  EXPECT_THAT(message(fewer), HasSubstr("it has 1 blocks, the checkpoint 2"));
  Model renamed;
  renamed.plan.blocks[1].name = "layers.7";
  EXPECT_THAT(message(renamed), HasSubstr("its block 1 is layers.7, the checkpoint's layers.1"));
  Model resized;
  resized.plan.blocks[0].stored_bytes += 1;
  EXPECT_THAT(message(resized), HasSubstr("its block layers.0 has 257 bytes"));
}

}  // namespace
}  // namespace trash_panda::plan
