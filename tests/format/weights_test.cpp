#include "trash_panda/format/weights.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/checkpoint_builder.h"

namespace trash_panda::format {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::SafetensorsBuilder;
using testing::TempDir;
using testing::write_text;

constexpr const char* kFineGrained =
    R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";

/// A checkpoint in a folder of its own and what find_weights() says about it.
struct Found {
  explicit Found(const SafetensorsBuilder& builder, std::string_view config = {}) {
    builder.write(folder / "model.safetensors");
    if (!config.empty()) {
      write_text(folder / "config.json", config);
    }
    auto opened = Checkpoint::open(folder.path());
    EXPECT_TRUE(opened) << opened.error().to_string();
    checkpoint = *std::move(opened);
    table = find_weights(checkpoint);
  }

  [[nodiscard]] const Weight& weight(const std::string& name) const {
    const auto found = std::ranges::find(table.value().weights, name, &Weight::name);
    EXPECT_NE(found, table->weights.end()) << name;
    return *found;
  }
  [[nodiscard]] std::vector<std::string> parameters() const {
    std::vector<std::string> names;
    for (const Weight& found : table.value().weights) {
      names.emplace_back(found.name);
    }
    return names;
  }
  [[nodiscard]] std::string warnings() const {
    std::string text;
    for (const std::string& line : table.value().warnings) {
      text += line + "\n";
    }
    return text;
  }
  /// "reason: message", or nothing when there is no error.
  [[nodiscard]] std::string error() const {
    return table ? "" : std::string(table.error().reason()) + ": " + table.error().message();
  }

  TempDir folder;
  Checkpoint checkpoint;
  Result<WeightTable> table = std::unexpected(Error(ErrorCode::kFailed, "not run"));
};

std::string one(float value) {
  return bytes_of(std::vector<float>{value});
}

SafetensorsBuilder scaled(const std::string& scale, Dtype dtype, const Shape& shape) {
  SafetensorsBuilder builder;
  builder.add_random("layer.weight", Dtype::kF8E4M3, {24, 40}).add_random(scale, dtype, shape);
  return builder;
}

TEST(FindWeights, LeavesPlainCheckpointsAlone) {
  const Found found(SafetensorsBuilder()
                        .add_random("layer.weight", Dtype::kBf16, {4, 4})
                        .add_random("layer.scale", Dtype::kF32, {4})
                        .add_random("logit_scale", Dtype::kF32, {})
                        .add_random("k_scale", Dtype::kF32, {})
                        .add_random("position_ids", Dtype::kI64, {1, 8}));
  EXPECT_THAT(found.parameters(),
              ElementsAre("layer.weight", "layer.scale", "logit_scale", "k_scale", "position_ids"));
  EXPECT_THAT(found.table->formats, ElementsAre("i64", "bf16", "fp32"));
  EXPECT_THAT(found.table->ignored, IsEmpty());
  EXPECT_EQ(found.warnings(), "");
}

TEST(FindWeights, WarnsOfFp8WithoutAScale) {
  const Found found(SafetensorsBuilder().add_random("a.weight", Dtype::kF8E5M2, {4, 4}));
  EXPECT_FALSE(found.weight("a.weight").scale);
  EXPECT_THAT(found.warnings(),
              HasSubstr("1 fp8 tensor without a scale, read as stored: a.weight"));
  EXPECT_THAT(found.table->formats, ElementsAre("fp8 e5m2 (no scale)"));
}

TEST(FindWeights, PairsEverySpellingOfAScale) {
  for (const std::string scale : {"layer.weight_scale", "layer.weight_scale_inv",
                                  "layer.scale_weight", "layer.qscale_weight", "layer.scale"}) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{24}, Shape{24, 1}}) {
      const Found found(scaled(scale, Dtype::kF32, shape));
      ASSERT_EQ(found.error(), "") << scale;
      EXPECT_THAT(found.parameters(), ElementsAre("layer.weight")) << scale;
      const Weight& weight = found.weight("layer.weight");
      ASSERT_TRUE(weight.scale) << scale;
      EXPECT_EQ(found.checkpoint.tensors()[weight.scale->tensor_index].name, scale);
      EXPECT_EQ(weight.scale->granularity,
                shape.empty() || shape[0] == 1 ? Granularity::kTensor : Granularity::kRow);
    }
  }
}

TEST(FindWeights, PairsExpertStacksThatHaveNoWeightSuffix) {
  const Found found(SafetensorsBuilder()
                        .add_random("moe.gate_up_proj", Dtype::kF8E4M3, {2, 64, 136})
                        .add_random("moe.gate_up_proj_scale_inv", Dtype::kF32, {2, 1, 2}),
                    kFineGrained);
  EXPECT_EQ(found.weight("moe.gate_up_proj").scale.value().shape, (Shape{2, 1, 2}));
}

TEST(FindWeights, TakesScalesOfEveryFloatDtype) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16, Dtype::kF16, Dtype::kF64, Dtype::kF8E8M0}) {
    EXPECT_EQ(Found(scaled("layer.weight_scale", dtype, {})).error(), "") << dtype_name(dtype);
  }
}

TEST(FindWeights, TakesU8ScalesOnlyWhereTheConfigurationSaysExponents) {
  const SafetensorsBuilder builder = scaled("layer.weight_scale_inv", Dtype::kU8, {1, 1});
  EXPECT_THAT(Found(builder, kFineGrained).error(), HasSubstr("scale_dtype: "));
  EXPECT_EQ(Found(builder, R"({"quantization_config": {"quant_method": "fp8", "scale_fmt": "ue8m0",
                             "weight_block_size": [128, 128]}})")
                .error(),
            "");
}

TEST(FindWeights, RefusesScalesOfAnotherDtype) {
  const Found found(scaled("layer.weight_scale", Dtype::kI64, {}));
  EXPECT_THAT(found.error(), HasSubstr("scale_dtype: "));
  EXPECT_THAT(found.error(), HasSubstr("layer.weight_scale of weight layer.weight has dtype I64"));
  EXPECT_EQ(found.table.error().code(), ErrorCode::kCorrupt);
}

TEST(FindWeights, RefusesScalesThatFitNoAxisNamingBothShapes) {
  EXPECT_THAT(Found(scaled("layer.weight_scale", Dtype::kF32, {7})).error(),
              HasSubstr("scale_shape: "));
  EXPECT_THAT(Found(scaled("layer.weight_scale", Dtype::kF32, {7})).error(),
              HasSubstr("layer.weight_scale [7] does not fit its weight layer.weight [24, 40]"));
}

TEST(FindWeights, RefusesTwoScalesForOneWeight) {
  auto builder = scaled("layer.weight_scale", Dtype::kF32, {});
  builder.add_random("layer.scale_weight", Dtype::kF32, {});
  EXPECT_THAT(Found(builder).error(), HasSubstr("scale_ambiguous: "));
}

TEST(FindWeights, RefusesAMissingScaleWhereTheModelIsQuantized) {
  auto builder = scaled("layer.weight_scale_inv", Dtype::kF32, {1, 1});
  builder.add_random("other.weight", Dtype::kF8E4M3, {8, 8});
  EXPECT_THAT(Found(builder, kFineGrained).error(), HasSubstr("scale_missing: "));
  EXPECT_THAT(Found(builder, kFineGrained).error(), HasSubstr("other.weight [8, 8]"));
  EXPECT_THAT(Found(builder).warnings(), HasSubstr("other.weight"));
}

TEST(FindWeights, LeavesOutOrphansWithAWarning) {
  auto builder = scaled("layer.weight_scale", Dtype::kF32, {});
  builder.add_random("gone.weight_scale", Dtype::kF32, {});
  const Found found(builder);
  EXPECT_EQ(found.table->ignored.size(), 1U);
  EXPECT_THAT(found.warnings(), HasSubstr("gone.weight_scale"));
}

TEST(FindWeights, KeepsScalesBesideFloatWeights) {
  auto builder = scaled("layer.weight_scale", Dtype::kF32, {});
  builder.add_random("head.weight", Dtype::kBf16, {4, 4})
      .add_random("head.weight_scale", Dtype::kF32, {4, 1});
  const Found found(builder);
  EXPECT_FALSE(found.weight("head.weight").scale);
  EXPECT_EQ(found.weight("head.weight_scale").dtype, Dtype::kF32);
  EXPECT_THAT(found.warnings(), HasSubstr("head.weight_scale"));
}

TEST(FindWeights, IgnoresActivationAndCacheScales) {
  auto builder = scaled("layer.weight_scale", Dtype::kF32, {});
  for (const char* name :
       {"layer.input_scale", "layer.scale_input", "layer.act_scale", "layer.activation_scale",
        "layer.input_scale_ub", "layer.qscale_act", "attn.k_scale", "attn.v_scale", "attn.kv_scale",
        "attn.q_output_scale", "scaled_fp8"}) {
    builder.add_random(name, Dtype::kF32, {1});
  }
  const Found found(builder);
  EXPECT_THAT(found.parameters(), ElementsAre("layer.weight"));
  EXPECT_EQ(found.table->ignored.size(), 11U);
  EXPECT_EQ(found.warnings(), "");
}

TEST(FindWeights, SaysThatAPreQuantScaleIsNotApplied) {
  auto builder = scaled("layer.weight_scale", Dtype::kF32, {});
  builder.add_random("layer.pre_quant_scale", Dtype::kBf16, {40});
  EXPECT_THAT(Found(builder).warnings(), HasSubstr("layer.pre_quant_scale"));
}

TEST(FindWeights, RefusesCompanionsThatItDoesNotKnow) {
  auto builder = scaled("layer.weight_scale", Dtype::kF32, {});
  builder.add_random("layer.weight_correction", Dtype::kF32, {24});
  EXPECT_THAT(Found(builder).error(), HasSubstr("unsupported_format: "));
  EXPECT_THAT(Found(builder).error(), HasSubstr("layer.weight_correction"));
}

TEST(FindWeights, WarnsOfSpecialScaleValues) {
  SafetensorsBuilder builder;
  const auto add = [&builder](const std::string& name, float value) {
    builder.add_random(name + ".weight", Dtype::kF8E4M3, {4, 4})
        .add(name + ".weight_scale", Dtype::kF32, {}, one(value));
  };
  add("good", 0.5F);
  add("zero", 0.0F);
  add("unset", std::numeric_limits<float>::lowest());
  const Found found(builder);
  EXPECT_THAT(found.warnings(), HasSubstr("1 scale with a value that is zero: zero.weight_scale"));
  EXPECT_THAT(found.warnings(), HasSubstr("unset.weight_scale"));
  EXPECT_THAT(found.warnings(), Not(HasSubstr("good")));
}

TEST(FindWeights, WarnsOfACroppedGrid) {
  SafetensorsBuilder builder;
  builder.add_random("layer.weight", Dtype::kF8E4M3, {130, 100})
      .add("layer.weight_scale_inv", Dtype::kF32, {3, 1}, one(1) + one(2) + one(3));
  const Found found(builder, kFineGrained);
  EXPECT_THAT(found.warnings(), HasSubstr("layer.weight_scale_inv [3, 1] is cut to [2, 1]"));
  EXPECT_THAT(read_scale(found.checkpoint, *found.weight("layer.weight").scale).value(),
              ElementsAre(1, 2));
}

TEST(FindWeights, PutsEveryTensorInOnePlace) {
  auto builder = scaled("layer.weight_scale", Dtype::kF32, {});
  builder.add_random("layer.input_scale", Dtype::kF32, {})
      .add_random("layer.bias", Dtype::kBf16, {24})
      .add_random("gone.weight_scale", Dtype::kF32, {});
  const Found found(builder);
  std::multiset<std::size_t> places(found.table->ignored.begin(), found.table->ignored.end());
  for (const Weight& weight : found.table->weights) {
    places.insert(weight.tensor_index);
    if (weight.scale) {
      places.insert(weight.scale->tensor_index);
    }
  }
  EXPECT_THAT(places, ElementsAre(0, 1, 2, 3, 4));
}

TEST(FindWeights, ReadsTiesFromMetadata) {
  const Found found(SafetensorsBuilder()
                        .metadata("format", "pt")
                        .metadata("lm_head.weight", "embed.weight")
                        .metadata("head.weight", "lm_head.weight")
                        .add_random("embed.weight", Dtype::kBf16, {4, 4}));
  EXPECT_THAT(found.table->aliases, ElementsAre(std::pair("head.weight", "embed.weight"),
                                                std::pair("lm_head.weight", "embed.weight")));
}

/// Why a checkpoint is not opened.
std::string open_error(const SafetensorsBuilder& builder) {
  const TempDir folder;
  builder.write(folder / "model.safetensors");
  const auto opened = Checkpoint::open(folder.path());
  return opened ? "opened" : std::string(opened.error().reason()) + ": " + opened.error().message();
}

TEST(FindWeights, RefusesATieToNothing) {
  const std::string error = open_error(SafetensorsBuilder()
                                           .metadata("lm_head.weight", "gone.weight")
                                           .add_random("embed.weight", Dtype::kBf16, {4, 4}));
  EXPECT_THAT(error, HasSubstr("missing_tensor: "));
  EXPECT_THAT(error, HasSubstr("lm_head.weight is tied to gone.weight"));
}

TEST(FindWeights, EndsOnCirclesOfTies) {
  EXPECT_THAT(open_error(SafetensorsBuilder()
                             .metadata("a.weight", "b.weight")
                             .metadata("b.weight", "a.weight")
                             .add_random("embed.weight", Dtype::kBf16, {4, 4})),
              HasSubstr("missing_tensor: "));
}

}  // namespace
}  // namespace trash_panda::format
