#include "trash_panda/plan/block_groups.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// "layers. x 4" per group, in order.
std::vector<std::string> groups_of(const std::vector<format::TensorRecord>& tensors) {
  std::vector<std::string> texts;
  const auto map = find_blocks(tensors);
  for (const BlockGroup& group : map.value().groups) {
    texts.push_back(fmt::format("{} x {}", group.prefix, group.blocks.size()));
  }
  return texts;
}

const std::vector<std::string_view> kLayer{"attn.q.weight", "mlp.up.weight", "norm.weight"};

TEST(FindBlocks, FindsATransformersLayers) {
  Names names;
  names.add("model.embed.weight").add_list("model.layers.", 12, kLayer).add("lm_head.weight");
  const BlockMap map = find_blocks(names.tensors()).value();
  ASSERT_EQ(map.groups.size(), 1U);
  EXPECT_EQ(map.groups[0].prefix, "model.layers.");
  ASSERT_EQ(map.groups[0].blocks.size(), 12U);
  EXPECT_EQ(map.groups[0].blocks[3].name, "model.layers.3");
  EXPECT_THAT(map.groups[0].blocks[3].tensors, ElementsAre(10, 11, 12));
  EXPECT_EQ(map.groups[0].blocks[3].stored_bytes, 3U * 128);
  EXPECT_THAT(map.outside, ElementsAre(0, 37));
}

TEST(FindBlocks, OrdersBlocksByNumberWhenTheFileIsSortedByName) {
  Names sorted;
  for (const int index : {0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9}) {
    sorted.add(fmt::format("layers.{}.attn.weight", index));
  }
  const BlockMap map = find_blocks(sorted.tensors()).value();
  ASSERT_EQ(map.groups.size(), 1U);
  for (std::size_t index = 0; index < 12; ++index) {
    EXPECT_EQ(map.groups[0].blocks[index].name, fmt::format("layers.{}", index));
  }
}

TEST(FindBlocks, KeepsGapsAndIrregularMembers) {
  Names names;
  for (const int index : {0, 2, 3, 4}) {
    names.add(fmt::format("layers.{}.attn.q.weight", index));
    names.add(fmt::format("layers.{}.mlp.up.weight", index));
  }
  names.add("layers.0.attn.relative_attention_bias.weight").add("layers.4.shared_head.head.weight");
  EXPECT_THAT(groups_of(names.tensors()), ElementsAre("layers. x 4"));
}

TEST(FindBlocks, KeepsExpertsInsideTheirLayer) {
  Names names;
  for (int layer = 0; layer < 3; ++layer) {
    names.add(fmt::format("layers.{}.attn.q.weight", layer));
    if (layer > 0) {
      names.add_list(fmt::format("layers.{}.mlp.experts.", layer), 64, {"w1.weight", "w2.weight"});
    } else {
      names.add("layers.0.mlp.up.weight");
    }
  }
  EXPECT_THAT(groups_of(names.tensors()), ElementsAre("layers. x 3"));
}

TEST(FindBlocks, TakesTheOuterListOfUnetLevels) {
  const std::vector<std::string_view> resnet{"norm1.weight", "conv1.weight", "conv2.weight"};
  Names names;
  names.add("conv_in.weight");
  names.add_list("down_blocks.0.resnets.", 2, resnet);
  names.add_list("down_blocks.1.resnets.", 2, resnet);
  names.add_list("down_blocks.1.attentions.", 2, {"proj_in.weight", "attn.to_q.weight"});
  names.add_list("up_blocks.0.resnets.", 3, resnet).add_list("up_blocks.1.resnets.", 3, resnet);
  names.add("up_blocks.0.upsamplers.0.conv.weight");
  names.add("mid_block.attentions.0.proj_in.weight").add("mid_block.attentions.0.to_q.weight");
  names.add_list("mid_block.resnets.", 2, resnet);
  EXPECT_THAT(groups_of(names.tensors()),
              ElementsAre("down_blocks. x 2", "mid_block.resnets. x 2", "up_blocks. x 2"));
}

TEST(FindBlocks, DescendsIntoAListOfOne) {
  Names names;
  names.add_list("mid_block.attentions.0.transformer_blocks.", 10,
                 {"attn1.to_q.weight", "ff.net.0.proj.weight", "ff.net.2.weight"});
  EXPECT_THAT(groups_of(names.tensors()),
              ElementsAre("mid_block.attentions.0.transformer_blocks. x 10"));
}

TEST(FindBlocks, AcceptsAMiddleBlockWithOneOtherMember) {
  Names names;
  names.add_list("middle_block.", 3, {"emb_layers.1.weight"});
  names.add("middle_block.0.in_layers.0.weight").add("middle_block.2.in_layers.0.weight");
  names.add("middle_block.1.proj_in.weight").add("middle_block.1.norm.weight");
  EXPECT_THAT(groups_of(names.tensors()), ElementsAre("middle_block. x 3"));
}

TEST(FindBlocks, TellsTwoEncodersInOneListApart) {
  Names names;
  names.add_list("conditioner.embedders.0.transformer.text_model.encoder.layers.", 4, kLayer);
  names.add_list("conditioner.embedders.1.model.transformer.resblocks.", 5,
                 {"attn.in_proj_weight", "ln_1.weight"});
  EXPECT_THAT(groups_of(names.tensors()),
              ElementsAre("conditioner.embedders.0.transformer.text_model.encoder.layers. x 4",
                          "conditioner.embedders.1.model.transformer.resblocks. x 5"));
}

TEST(FindBlocks, LeavesSequentialsOutside) {
  Names names;
  names.add_list("blocks.", 4, kLayer);
  for (const auto* name : {"time_embed.0.weight", "time_embed.2.weight", "time_projection.1.weight",
                           "label_emb.0.0.weight", "label_emb.0.2.weight", "cap_embedder.0.weight",
                           "cap_embedder.1.weight", "final_layer.adaLN_modulation.1.weight",
                           "ff.net.0.proj.weight", "ff.net.2.weight"}) {
    names.add(name);
  }
  const BlockMap map = find_blocks(names.tensors()).value();
  ASSERT_EQ(map.groups.size(), 1U);
  EXPECT_EQ(map.groups[0].prefix, "blocks.");
  EXPECT_EQ(map.outside.size(), 10U);
}

TEST(FindBlocks, TakesCompanionsBelowAParameterForNoModule) {
  Names names;
  names.add_list("time_embed.", 2, {"weight", "weight.absmax", "weight.quant_map"});
  EXPECT_THAT(groups_of(names.tensors()), IsEmpty());
}

TEST(FindBlocks, FindsEqualSimpleLayersOnlyWhereThereIsNothingElse) {
  Names alone;
  alone.add_list("layers.", 24, {"weight", "bias"});
  EXPECT_THAT(groups_of(alone.tensors()), ElementsAre("layers. x 24"));
  Names beside;
  beside.add_list("lm_heads.", 4, {"weight"}).add_list("layers.", 4, kLayer);
  EXPECT_THAT(groups_of(beside.tensors()), ElementsAre("layers. x 4"));
  Names two;
  two.add_list("layers.", 2, {"weight"});
  EXPECT_THAT(groups_of(two.tensors()), IsEmpty());
  Names unequal;
  unequal.add("net.0.weight", {8, 4}).add("net.1.weight", {8, 8}).add("net.2.weight", {1, 8});
  EXPECT_THAT(groups_of(unequal.tensors()), IsEmpty());
}

TEST(FindBlocks, FindsListsAtTheRoot) {
  Names names;
  names.add_list("", 3, kLayer);
  const BlockMap map = find_blocks(names.tensors()).value();
  ASSERT_EQ(map.groups.size(), 1U);
  EXPECT_EQ(map.groups[0].prefix, "");
  EXPECT_EQ(map.groups[0].blocks[2].name, "2");
}

TEST(FindBlocks, FindsNothingInAModelWithoutLists) {
  Names names;
  names.add("conv1.weight").add("conv2.weight").add("head.weight");
  const BlockMap map = find_blocks(names.tensors()).value();
  EXPECT_THAT(map.groups, IsEmpty());
  EXPECT_THAT(map.outside, ElementsAre(0, 1, 2));
  EXPECT_THAT(find_blocks({}).value().groups, IsEmpty());
}

TEST(FindBlocks, OrdersGroupsByTheirWordsNotByTheFile) {
  Names names;
  for (const auto* prefix :
       {"decoder.mid_block.resnets.", "decoder.up_blocks.", "encoder.down_blocks."}) {
    names.add_list(prefix, 2, kLayer);
  }
  EXPECT_THAT(groups_of(names.tensors()),
              ElementsAre("encoder.down_blocks. x 2", "decoder.mid_block.resnets. x 2",
                          "decoder.up_blocks. x 2"));
  Names flux;
  flux.add_list("single_transformer_blocks.", 4, kLayer).add_list("transformer_blocks.", 2, kLayer);
  flux.add_list("token_refiner.refiner_blocks.", 2, kLayer);
  EXPECT_THAT(groups_of(flux.tensors()),
              ElementsAre("token_refiner.refiner_blocks. x 2", "transformer_blocks. x 2",
                          "single_transformer_blocks. x 4"));
  Names unknown;
  unknown.add_list("b.", 2, kLayer).add_list("a.", 2, kLayer);
  EXPECT_THAT(groups_of(unknown.tensors()), ElementsAre("b. x 2", "a. x 2"));
}

TEST(FindBlocks, IsAPartitionWhateverTheNames) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 engine(seed);
  const std::vector<std::string_view> words{
      "0", "1", "2", "10", "01", "a", "weight", "", "layers", "99999999999999999999", "x_1"};
  for (int round = 0; round < 200; ++round) {
    Names names;
    std::vector<std::string> used;
    for (int tensor = 0; tensor < 40; ++tensor) {
      std::string name(words[engine() % words.size()]);
      for (std::size_t depth = engine() % 5; depth > 0; --depth) {
        name += '.';
        name += words[engine() % words.size()];
      }
      if (std::ranges::find(used, name) == used.end()) {
        used.push_back(name);
        names.add(name);
      }
    }
    const BlockMap map = find_blocks(names.tensors()).value();
    std::vector<std::size_t> seen = map.outside;
    for (const BlockGroup& group : map.groups) {
      EXPECT_GE(group.blocks.size(), 2U);
      for (const Block& block : group.blocks) {
        EXPECT_TRUE(block.name.starts_with(group.prefix)) << block.name;
        seen.insert(seen.end(), block.tensors.begin(), block.tensors.end());
      }
    }
    std::ranges::sort(seen);
    ASSERT_EQ(seen.size(), names.tensors().size());
    EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
  }
}

TEST(FindBlocks, KeepsDeepNamesShallow) {
  Names names;
  std::string deep;
  for (int depth = 0; depth < 100'000; ++depth) {
    deep += "a.";
  }
  names.add(deep).add_list("layers.", 2, kLayer);
  EXPECT_THAT(groups_of(names.tensors()), ElementsAre("layers. x 2"));
}

TEST(FindBlocks, TakesGroupsFromTheUser) {
  Names names;
  names.add_list("layers.", 4, kLayer).add_list("heads.", 2, {"weight"});
  BlockOptions options;
  options.groups = {"heads."};
  const BlockMap map = find_blocks(names.tensors(), options).value();
  ASSERT_EQ(map.groups.size(), 1U);
  EXPECT_EQ(map.groups[0].prefix, "heads.");
  EXPECT_EQ(map.outside.size(), 12U);
  options.groups = {"heads", "layers"};
  EXPECT_EQ(find_blocks(names.tensors(), options).value().groups.size(), 2U);
}

TEST(FindBlocks, RefusesAGroupThatDoesNotExistAndSaysWhichDo) {
  Names names;
  names.add_list("model.layers.", 4, kLayer);
  BlockOptions options;
  options.groups = {"layers"};
  const auto map = find_blocks(names.tensors(), options);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code(), ErrorCode::kUsage);
  EXPECT_EQ(map.error().message(), "--group layers: no tensor is named layers.<number>.…");
  EXPECT_THAT(map.error().hint(), HasSubstr("model.layers."));
}

TEST(FindBlocks, RefusesGroupsThatOverlap) {
  Names names;
  names.add_list("layers.0.experts.", 4, kLayer).add_list("layers.1.experts.", 4, kLayer);
  BlockOptions options;
  options.groups = {"layers", "layers.1.experts"};
  const auto map = find_blocks(names.tensors(), options);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code(), ErrorCode::kUsage);
  EXPECT_THAT(map.error().message(), HasSubstr("overlaps block layers.1"));
}

}  // namespace
}  // namespace trash_panda::plan
