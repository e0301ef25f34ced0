#include "model_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using format::Dtype;

/// Two fp8 blocks with a per-row bf16 scale, an activation scale and a norm; an embedding.
struct Fp8Model {
  Fp8Model() {
    names.add("embed.weight", {100, 8}, Dtype::kF32);
    for (const char* block : {"layers.0.", "layers.1."}) {
      const std::size_t at = names.tensors().size();
      names.add(fmt::format("{}proj.weight", block), {16, 8}, Dtype::kF8E4M3);
      names.add(fmt::format("{}proj.weight_scale", block), {16, 1}, Dtype::kBf16);
      names.add(fmt::format("{}proj.input_scale", block), {}, Dtype::kF32);
      names.add(fmt::format("{}norm.weight", block), {8}, Dtype::kBf16);
      format::WeightScale scale{};
      scale.tensor_index = at + 1;
      scale.granularity = format::Granularity::kRow;
      scale.shape = {16, 1};
      weights.weights.push_back({fmt::format("{}proj.weight", block), at, Dtype::kF8E4M3, scale});
      weights.weights.push_back(
          {fmt::format("{}norm.weight", block), at + 3, Dtype::kBf16, std::nullopt});
      weights.ignored.push_back(at + 2);
    }
    weights.weights.push_back({"embed.weight", 0, Dtype::kF32, std::nullopt});
    blocks = find_blocks(names.tensors()).value();
  }

  Names names;
  format::WeightTable weights;
  BlockMap blocks;
};

TEST(SummarizeModel, CountsStoredBytesAsTheFileHasThem) {
  const Fp8Model model;
  const ModelSummary summary =
      summarize_tensors(model.names.tensors(), model.weights, model.blocks, "bf16");
  ASSERT_EQ(summary.blocks.size(), 2U);
  EXPECT_EQ(summary.blocks[0].name, "layers.0");
  EXPECT_EQ(summary.blocks[0].stored_bytes, 128U + 32 + 4 + 16);
  EXPECT_EQ(summary.base_stored_bytes, 3200U);
  EXPECT_EQ(summary.total_bytes, 3200U + 2 * 180);
  EXPECT_EQ(summary.tensor_count, 9U);
}

TEST(SummarizeModel, CountsExponentCodesOfMxScalesAsTheyArePacked) {
  Fp8Model model;
  format::WeightScale& scale = *model.weights.weights[0].scale;
  scale.granularity = format::Granularity::kBlock;
  scale.shape = {16, 500};  // As if the weight were longer: only the scale's own size counts here.
  scale.block_shape = {1, 32};
  const auto extent_bytes = [&model](Dtype dtype) {
    model.weights.weights[0].scale->dtype = dtype;
    return summarize_tensors(model.names.tensors(), model.weights, model.blocks, "bf16")
        .blocks[0]
        .extent_bytes;
  };
  EXPECT_EQ(extent_bytes(Dtype::kF8E8M0), 3 * 4096U);  // 256 + 8,192 + 256, to the next page.
  EXPECT_EQ(extent_bytes(Dtype::kF32), 8 * 4096U);     // 256 + 32,000 and its padding + 256.
}

TEST(SummarizeModel, PadsExtentsAndWidensScales) {
  const Fp8Model model;
  const ModelSummary summary =
      summarize_tensors(model.names.tensors(), model.weights, model.blocks, "bf16");
  // Payload, F32 scale and norm start on 256 bytes each; the extent ends on a page.
  EXPECT_EQ(summary.blocks[0].extent_bytes, 4096U);
}

TEST(SummarizeModel, ExpandsToTheComputeDtype) {
  const Fp8Model model;
  const auto expanded = [&model](std::string_view dtype) {
    return summarize_tensors(model.names.tensors(), model.weights, model.blocks, dtype);
  };
  EXPECT_EQ(expanded("bf16").blocks[0].expanded_bytes, 256U + 16);
  EXPECT_EQ(expanded("bf16").expansion_bytes_max, 272U);
  EXPECT_EQ(expanded("bf16").base_expanded_bytes, 1600U);
  EXPECT_EQ(expanded("fp32").blocks[0].expanded_bytes, 512U + 32);
  EXPECT_EQ(expanded("fp32").base_expanded_bytes, 3200U);
  // Kept as stored: the scale stays beside its payload, nothing is expanded.
  EXPECT_EQ(expanded("keep").blocks[0].expanded_bytes, 128U + 64 + 16);
  EXPECT_EQ(expanded("keep").expansion_bytes_max, 0U);
}

TEST(SummarizeModel, ExpandsNothingThatIsInTheComputeDtypeOrNoFloat) {
  Names names;
  names.add_list("layers.", 2, {"attn.weight"});
  names.add("layers.0.attn.ids", {4}, Dtype::kI64).add("layers.1.attn.ids", {4}, Dtype::kI64);
  const BlockMap blocks = find_blocks(names.tensors()).value();
  const ModelSummary summary =
      summarize_tensors(names.tensors(), plain_weights(names.tensors()), blocks, "bf16");
  EXPECT_EQ(summary.expansion_bytes_max, 0U);
  EXPECT_EQ(summary.blocks[0].expanded_bytes, 128U + 32);
}

TEST(ParseComputeDtype, KnowsItsNames) {
  EXPECT_EQ(parse_compute_dtype("bf16").value(), Dtype::kBf16);
  EXPECT_EQ(parse_compute_dtype("fp16").value(), Dtype::kF16);
  EXPECT_EQ(parse_compute_dtype("fp32").value(), Dtype::kF32);
  EXPECT_EQ(parse_compute_dtype("keep").value(), std::nullopt);
  ASSERT_FALSE(parse_compute_dtype("int4"));
  EXPECT_EQ(parse_compute_dtype("int4").error().code(), ErrorCode::kUsage);
}

}  // namespace
}  // namespace trash_panda::plan
