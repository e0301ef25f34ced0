#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/weights.h"

#include "support/checkpoint_builder.h"

namespace trash_panda::format {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SafetensorsBuilder;
using testing::TempDir;
using testing::write_text;

struct Outcome {
  std::string error;  ///< "reason: message"; empty: none.
  WeightTable table;
  std::optional<Checkpoint> checkpoint;  ///< Owns the names in the table.
};

Outcome find(const SafetensorsBuilder& builder, std::string_view config = {},
             std::string_view config_name = "config.json") {
  const TempDir folder;
  builder.write(folder / "model.safetensors");
  if (!config.empty()) {
    write_text(folder / config_name, config);
  }
  auto checkpoint = Checkpoint::open(folder.path());
  EXPECT_TRUE(checkpoint) << checkpoint.error().to_string();
  auto table = find_weights(*checkpoint);
  if (!table) {
    return {.error = std::string(table.error().reason()) + ": " + table.error().message(),
            .table = {},
            .checkpoint = {}};
  }
  return {.error = {}, .table = *std::move(table), .checkpoint = *std::move(checkpoint)};
}

SafetensorsBuilder comfy(Dtype dtype, const std::string& blob) {
  SafetensorsBuilder builder;
  builder.add_random("layer.weight", dtype, {24, 40})
      .add_random("layer.weight_scale", Dtype::kF32, {})
      .add("layer.comfy_quant", Dtype::kU8, {blob.size()}, blob);
  return builder;
}

TEST(FindWeightsComfy, ReinterpretsFp8InU8) {
  const Outcome e4m3 = find(comfy(Dtype::kU8, R"({"format": "float8_e4m3fn"})"));
  ASSERT_EQ(e4m3.error, "");
  ASSERT_EQ(e4m3.table.weights.size(), 1U);
  EXPECT_EQ(e4m3.table.weights[0].dtype, Dtype::kF8E4M3);
  EXPECT_TRUE(e4m3.table.weights[0].scale);
  EXPECT_EQ(find(comfy(Dtype::kU8, R"({"format": "float8_e5m2"})")).table.weights.at(0).dtype,
            Dtype::kF8E5M2);
}

TEST(FindWeightsComfy, BelievesTheStoredDtypeAndSaysSo) {
  const Outcome found = find(comfy(Dtype::kF8E5M2, R"({"format": "float8_e4m3fn"})"));
  EXPECT_EQ(found.table.weights.at(0).dtype, Dtype::kF8E5M2);
  EXPECT_THAT(found.table.warnings,
              ElementsAre("1 weight is \"float8_e4m3fn\" by ComfyUI's metadata, but stored as "
                          "F8_E5M2, which counts: layer.weight"));
  for (const Dtype agreeing : {Dtype::kF8E4M3, Dtype::kU8}) {
    EXPECT_THAT(find(comfy(agreeing, R"({"format": "float8_e4m3fn"})")).table.warnings,
                ElementsAre());
  }
}

TEST(FindWeights, WarnsOfEverySpecialValueOfAScale) {
  SafetensorsBuilder builder;
  builder.add("layer.weight", Dtype::kF8E4M3, {2, 1}, "xy")
      .add("layer.weight_scale", Dtype::kF32, {2, 1}, std::string("\0\0\xc0\x7f\0\0\0\0", 8));
  const Outcome found = find(builder);
  EXPECT_EQ(found.error, "");
  EXPECT_THAT(found.table.warnings,
              ElementsAre("1 scale with a value that is NaN: layer.weight_scale",
                          "1 scale with a value that is zero: layer.weight_scale"));
}

TEST(FindWeightsComfy, RefusesUnknownFormatsByName) {
  const std::string error = find(comfy(Dtype::kI8, R"({"format": "int3_secret"})")).error;
  EXPECT_THAT(error, HasSubstr("unsupported_format: "));
  EXPECT_THAT(error, HasSubstr("int3_secret"));
  EXPECT_THAT(error, HasSubstr("layer.weight"));
  EXPECT_THAT(find(comfy(Dtype::kI8, R"({"format": "int8_tensorwise", "convrot": true})")).error,
              HasSubstr("\"int8_tensorwise\" with convrot"));
}

TEST(FindWeightsComfy, RefusesOptionsThatChangeValues) {
  for (const char* option : {R"("convrot": true, "convrot_groupsize": 16)", R"("convrot": 1)",
                             R"("convrot": "yes")", R"("transposed": true)"}) {
    const std::string layer = R"({"format": "float8_e4m3fn", )" + std::string(option) + "}";
    EXPECT_THAT(find(comfy(Dtype::kF8E4M3, layer)).error,
                AllOf(HasSubstr("unsupported_format: "), HasSubstr("\"float8_e4m3fn\" with "),
                      HasSubstr("layer.weight")))
        << option;
  }
  SafetensorsBuilder mx;
  const std::string blob = R"({"format": "mxfp8", "convrot": true})";
  mx.add_random("layer.weight", Dtype::kF8E4M3, {160, 96})
      .add_random("layer.weight_scale", Dtype::kU8, {256, 4})
      .add("layer.comfy_quant", Dtype::kU8, {blob.size()}, blob);
  EXPECT_THAT(find(mx).error, HasSubstr("\"mxfp8\" with convrot"));
  SafetensorsBuilder listed;
  listed.add_random("layer.weight", Dtype::kF8E4M3, {24, 40})
      .add_random("layer.weight_scale", Dtype::kF32, {})
      .metadata("_quantization_metadata",
                R"({\"layers\": {\"layer\": {\"format\": \"float8_e4m3fn\", )"
                R"(\"convrot\": true}}})");
  EXPECT_THAT(find(listed).error, HasSubstr("\"float8_e4m3fn\" with convrot"));
}

TEST(FindWeightsComfy, TakesOptionsThatChangeNoValue) {
  for (const char* option :
       {R"("full_precision_matrix_mult": true)", R"("convrot": false)", R"("convrot": 0)",
        R"("convrot": null)", R"("convrot": "")", R"("convrot_groupsize": 16)",
        R"("orig_dtype": "torch.bfloat16")", R"("note": "any text")", R"("other": false)"}) {
    const std::string layer = R"({"format": "float8_e4m3fn", )" + std::string(option) + "}";
    EXPECT_EQ(find(comfy(Dtype::kF8E4M3, layer)).error, "") << option;
  }
}

TEST(FindWeightsComfy, RefusesABlobAndMetadataThatDisagree) {
  const auto listed_as = [](const std::string& layer) {
    SafetensorsBuilder builder = comfy(Dtype::kU8, R"({"format": "float8_e5m2"})");
    builder.metadata("_quantization_metadata", R"({\"layers\": {\"layer\": )" + layer + "}}");
    return find(builder).error;
  };
  EXPECT_THAT(listed_as(R"(\"float8_e4m3fn\")"),
              AllOf(HasSubstr("bad_quant_metadata: "), HasSubstr("layer.weight"),
                    HasSubstr("\"float8_e5m2\" by layer.comfy_quant"),
                    HasSubstr("\"float8_e4m3fn\" by _quantization_metadata")));
  EXPECT_THAT(listed_as(R"({\"format\": \"float8_e5m2\", \"convrot\": true})"),
              HasSubstr("\"float8_e5m2\" with convrot by _quantization_metadata"));
  EXPECT_EQ(listed_as(R"(\"float8_e5m2\")"), "");
}

TEST(FindWeightsComfy, RefusesBlobsThatAreNoJsonObject) {
  for (const char* blob : {"{\"format\"", "[]", "{}", R"({"format": 8})", ""}) {
    const std::string error = find(comfy(Dtype::kF8E4M3, blob)).error;
    EXPECT_THAT(error, HasSubstr("bad_quant_metadata: ")) << blob;
    EXPECT_THAT(error, HasSubstr("layer.comfy_quant")) << blob;
  }
}

TEST(FindWeightsComfy, RefusesAListedLayerWithoutItsScale) {
  SafetensorsBuilder builder;
  builder.add_random("layer.weight", Dtype::kF8E4M3, {8, 8})
      .metadata("_quantization_metadata", R"({\"layers\": {\"layer\": \"float8_e4m3fn\"}})");
  EXPECT_THAT(find(builder).error, HasSubstr("scale_missing: "));
}

TEST(FindWeightsComfy, MatchesLayerNamesWithAPrefixMoreOrLess) {
  for (const char* name : {"model.diffusion_model.blocks.0", "blocks.0", "0"}) {
    for (const char* listed : {"model.diffusion_model.blocks.0", "blocks.0"}) {
      SafetensorsBuilder builder;
      builder.add_random(std::string(name) + ".weight", Dtype::kU8, {8, 8})
          .add_random(std::string(name) + ".weight_scale", Dtype::kF32, {})
          .metadata("_quantization_metadata", R"({\"layers\": {\")" + std::string(listed) +
                                                  R"(\": {\"format\": \"float8_e4m3fn\"}}})");
      const Outcome found = find(builder);
      ASSERT_EQ(found.error, "") << name << " listed as " << listed;
      EXPECT_EQ(found.table.weights.at(0).dtype, Dtype::kF8E4M3);
    }
  }
}

TEST(FindWeightsComfy, RefusesMetadataThatIsNoJson) {
  SafetensorsBuilder builder;
  builder.add_random("layer.weight", Dtype::kF8E4M3, {8, 8})
      .metadata("_quantization_metadata", "nothing");
  EXPECT_THAT(find(builder).error, HasSubstr("bad_quant_metadata: "));
}

TEST(FindWeightsComfy, UnswizzlesMxfp8) {
  SafetensorsBuilder builder;
  const std::string blob = R"({"format": "mxfp8"})";
  builder.add_random("layer.weight", Dtype::kF8E4M3, {160, 96})
      .add_random("layer.weight_scale", Dtype::kU8, {256, 4})
      .add("layer.comfy_quant", Dtype::kU8, {blob.size()}, blob);
  const Outcome found = find(builder);
  ASSERT_EQ(found.error, "");
  const WeightScale& scale = found.table.weights.at(0).scale.value();
  EXPECT_EQ(scale.transform, ScaleTransform::kSwizzled);
  EXPECT_EQ(scale.shape, (Shape{160, 3}));
  EXPECT_EQ(scale.block_shape, (Shape{1, 32}));
  EXPECT_EQ(scale.dtype, Dtype::kF8E8M0);
  EXPECT_EQ(scale_size_bytes(scale), 480U);
}

TEST(FindWeightsComfy, RefusesMxfp8ScalesOfAnotherLayout) {
  SafetensorsBuilder builder;
  const std::string blob = R"({"format": "mxfp8"})";
  builder.add_random("layer.weight", Dtype::kF8E4M3, {160, 96})
      .add_random("layer.weight_scale", Dtype::kU8, {160, 3})
      .add("layer.comfy_quant", Dtype::kU8, {blob.size()}, blob);
  EXPECT_THAT(find(builder).error, HasSubstr("scale_shape: "));
}

/// torchao's metadata for `proj.weight`, escaped for a header.
SafetensorsBuilder torchao(const std::string& type, Dtype dtype) {
  SafetensorsBuilder builder;
  builder.metadata("tensor_names", R"([\"proj.weight\", \"proj.bias\"])")
      .metadata("proj.weight",
                R"({\"_type\": \")" + type + R"(\", \"_data\": {\"block_size\": [1, 40]}})")
      .metadata("proj.bias", R"({\"_type\": \"Tensor\"})")
      .add_random("proj._weight_qdata", dtype, {24, 40})
      .add_random("proj._weight_scale", Dtype::kF32, {24, 1})
      .add_random("proj.bias", Dtype::kBf16, {24});
  return builder;
}

TEST(FindWeightsTorchao, PutsTheParameterTogether) {
  const Outcome found = find(torchao("Float8Tensor", Dtype::kF8E4M3));
  ASSERT_EQ(found.error, "");
  ASSERT_EQ(found.table.weights.size(), 2U);
  EXPECT_EQ(found.table.weights[0].name, "proj.weight");
  EXPECT_EQ(found.table.weights[0].scale.value().shape, (Shape{24, 1}));
  EXPECT_EQ(found.table.weights[1].name, "proj.bias");
}

TEST(FindWeightsTorchao, RefusesOtherTensorTypesByName) {
  const std::string error = find(torchao("Int4Tensor", Dtype::kI8)).error;
  EXPECT_THAT(error, HasSubstr("unsupported_format: "));
  EXPECT_THAT(error, HasSubstr("weight proj.weight is stored as torchao Int4Tensor"));
}

TEST(FindWeightsTorchao, NamesAMissingPart) {
  SafetensorsBuilder builder;
  builder.metadata("tensor_names", R"([\"w\"])")
      .metadata("w", R"({\"_type\": \"Float8Tensor\"})")
      .add_random("_w_qdata", Dtype::kF8E4M3, {4, 4});
  EXPECT_THAT(find(builder).error, HasSubstr("scale_missing: "));
  EXPECT_THAT(find(builder).error, HasSubstr("_w_scale"));
}

/// Each packed scheme by its smallest telling set of tensors.
struct Packed {
  std::string_view scheme;
  std::vector<std::pair<std::string, Dtype>> tensors;
  std::string_view config;
};

TEST(FindWeightsPacked, RefusesEverySchemeByName) {
  const std::vector<Packed> schemes = {
      {"GPTQ", {{"x.qweight", Dtype::kI32}, {"x.g_idx", Dtype::kI32}}, ""},
      {"AWQ", {{"x.qweight", Dtype::kI32}}, R"({"quantization_config": {"quant_method": "awq"}})"},
      {"pack-quantized", {{"x.weight_packed", Dtype::kI32}}, ""},
      {"NVFP4", {{"x.weight_packed", Dtype::kU8}, {"x.weight_global_scale", Dtype::kF32}}, ""},
      {"MXFP4", {{"x.weight_packed", Dtype::kU8}, {"x.weight_scale", Dtype::kU8}}, ""},
      {"NVFP4",
       {{"x.weight", Dtype::kU8},
        {"x.weight_scale", Dtype::kF8E4M3},
        {"x.weight_scale_2", Dtype::kF32}},
       ""},
      {"MXFP4", {{"x.weight_blocks", Dtype::kU8}, {"x.weight_scales", Dtype::kU8}}, ""},
      {"MXFP4", {{"x.weight", Dtype::kI8}, {"x.scale", Dtype::kF8E8M0}}, ""},
      {"bitsandbytes 4-bit", {{"x.weight", Dtype::kU8}, {"x.weight.absmax", Dtype::kF32}}, ""},
      {"bitsandbytes 4-bit",
       {{"x.weight", Dtype::kU8}, {"x.weight.quant_state.bitsandbytes__nf4", Dtype::kU8}},
       ""},
      {"bitsandbytes 8-bit", {{"x.weight", Dtype::kI8}, {"x.SCB", Dtype::kF32}}, ""},
      {"int-quantized",
       {{"x.weight", Dtype::kI8}, {"x.weight_scale", Dtype::kBf16}},
       R"({"quantization_config": {"quant_method": "compressed-tensors",
                                   "format": "int-quantized"}})"},
      {"I8 codes with a scale", {{"x.weight", Dtype::kI8}, {"x.weight_scale", Dtype::kF32}}, ""},
      {"F4 codes with a scale", {{"x.weight", Dtype::kF4}, {"x.weight_scale", Dtype::kF32}}, ""},
      {"MLX",
       {{"x.weight", Dtype::kU32}, {"x.scales", Dtype::kF16}, {"x.biases", Dtype::kF16}},
       ""},
      {"HQQ", {{"x.W_q", Dtype::kU8}, {"x.scale", Dtype::kF16}, {"x.zero", Dtype::kF16}}, ""},
      {"AQLM", {{"x.codes", Dtype::kI16}, {"x.codebooks", Dtype::kF16}}, ""},
      {"quanto", {{"x.weight._data", Dtype::kI8}, {"x.weight._scale", Dtype::kF16}}, ""},
      {"quanto", {{"x.weight._data", Dtype::kF8E4M3}, {"x.weight._scale", Dtype::kF16}}, ""},
      {"\"eetq\"",
       {{"x.weight", Dtype::kI8}, {"x.weight_scales", Dtype::kF16}},
       R"({"quantization_config": {"quant_method": "eetq"}})"},
      {"fp_quant codes",
       {{"x.qweight", Dtype::kU8}},
       R"({"quantization_config": {"quant_method": "fp_quant"}})"},
      {"\"secret\"",
       {{"x.weight", Dtype::kI32}},
       R"({"quantization_config": {"quant_method": "secret"}})"},
  };
  for (const Packed& packed : schemes) {
    SafetensorsBuilder builder;
    for (const auto& [name, dtype] : packed.tensors) {
      builder.add_random(name, dtype, {4, 8});
    }
    const std::string error = find(builder, packed.config).error;
    EXPECT_THAT(error, HasSubstr("unsupported_format: ")) << packed.scheme;
    EXPECT_THAT(error, HasSubstr(std::string(packed.scheme)));
    EXPECT_THAT(error, HasSubstr("x.weight")) << packed.scheme;
  }
}

/// Formats that nobody here has heard of: companions by their look, of which none may be dropped.
TEST(FindWeightsPacked, RefusesCompanionsThatNoRuleKnows) {
  for (const Dtype dtype : {Dtype::kF8E4M3, Dtype::kF8E5M2, Dtype::kU8, Dtype::kI32, Dtype::kF4}) {
    for (const char* companion : {"x.scales", "x.weights_scaling_factor", "x.zero_point",
                                  "x.codebook", "x.weight.scale", "x.weight.absmax_of_group"}) {
      SafetensorsBuilder builder;
      builder.add_random("x.weight", dtype, {4, 8}).add_random(companion, Dtype::kF32, {4, 1});
      const std::string error = find(builder).error;
      EXPECT_THAT(error, HasSubstr("unsupported_format: ")) << dtype_name(dtype) << companion;
      EXPECT_THAT(error, HasSubstr("x.weight")) << dtype_name(dtype) << companion;
    }
  }
}

TEST(FindWeightsPacked, TakesParametersThatOnlySoundLikeCompanions) {
  SafetensorsBuilder builder;
  builder.add_random("logit_scale", Dtype::kF32, {})
      .add_random("text_projection", Dtype::kF8E4M3, {4, 8})
      .add_random("blocks.0.scale_shift_table", Dtype::kF8E4M3, {6, 8})
      .add_random("blocks.0.attn.to_q.weight", Dtype::kF8E4M3, {4, 8})
      .add_random("blocks.0.attn.to_q.bias", Dtype::kBf16, {4})
      .add_random("blocks.0.attn.norm_q.scale", Dtype::kBf16, {8})
      .add_random("embeddings.position_ids", Dtype::kI32, {1, 77});
  const Outcome found = find(builder);
  EXPECT_EQ(found.error, "");
  EXPECT_EQ(found.table.weights.size(), 7U);
}

TEST(FindWeightsPacked, TellsHowMuchOfTheModelIsOfTheScheme) {
  SafetensorsBuilder builder;
  for (const char* layer : {"a", "b", "c"}) {
    const std::string name = layer;
    builder.add_random(name + ".qweight", Dtype::kI32, {8, 32})
        .add_random(name + ".qzeros", Dtype::kI32, {1, 4})
        .add_random(name + ".scales", Dtype::kF16, {1, 32})
        .add_random(name + ".g_idx", Dtype::kI32, {64});
  }
  builder.add_random("head.weight", Dtype::kBf16, {500, 64});
  const std::string error = find(builder).error;
  EXPECT_THAT(error, HasSubstr("weight a.weight is stored as GPTQ"));
  EXPECT_THAT(error, HasSubstr("(3 weights of it, 3.07 kB of 68.1 kB)"));
}

TEST(FindWeightsPacked, CountsAWeightOnceHoweverManyCompanionsItHas) {
  SafetensorsBuilder builder;
  builder.add_random("x.weight", Dtype::kU8, {64, 1})
      .add_random("x.weight.absmax", Dtype::kF32, {2})
      .add_random("x.weight.quant_map", Dtype::kF32, {16})
      .add_random("x.weight.quant_state.bitsandbytes__nf4", Dtype::kU8, {10});
  EXPECT_THAT(find(builder).error, HasSubstr("(1 weight of it, 64 B of "));
}

SafetensorsBuilder with_scale(const Shape& weight, const std::string& name, Dtype dtype,
                              const Shape& shape) {
  SafetensorsBuilder builder;
  builder.add_random("x.weight", Dtype::kF8E4M3, weight).add_random(name, dtype, shape);
  return builder;
}

TEST(FindWeightsConfig, TakesTileSizesFromEveryPlace) {
  const auto block_of = [](const Outcome& found) {
    EXPECT_EQ(found.error, "");
    return found.table.weights.at(0).scale.value().block_shape;
  };
  const SafetensorsBuilder tiles = with_scale({100, 200}, "x.weight_scale", Dtype::kF32, {2, 2});
  EXPECT_EQ(block_of(find(tiles, R"({"quantization_config": {"quant_method": "fp8",
                                   "weight_block_size": [64, 128]}})")),
            (Shape{64, 128}));
  EXPECT_EQ(block_of(find(tiles, R"({"text_config": {"quantization_config": {
                                   "quant_method": "fp8", "weight_block_size": [64, 128]}}})")),
            (Shape{64, 128}));
  for (const char* structure : {"[64, 128]", "\"64x128\""}) {
    EXPECT_EQ(block_of(find(tiles, std::string(R"({"quantization_config": {
        "quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {
        "group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "block",
        "block_structure": )") + structure +
                                       "}}}}}")),
              (Shape{64, 128}));
  }
  EXPECT_EQ(block_of(find(with_scale({16, 96}, "x.weight_scale", Dtype::kF32, {16, 2}),
                          R"({"quantization_config": {"quant_method": "compressed-tensors",
                            "config_groups": {"g": {"weights": {"strategy": "group",
                            "group_size": 48}}}}})")),
            (Shape{1, 48}));
  EXPECT_EQ(block_of(find(with_scale({16, 96}, "x.weight_scale", Dtype::kU8, {16, 3}),
                          R"({"quantization_config": {"quant_method": "compressed-tensors",
                            "format": "mxfp8-quantized"}})")),
            (Shape{1, 32}));
  EXPECT_EQ(
      block_of(find(with_scale({128, 256}, "x.weight_scale", Dtype::kF32, {1, 1, 2, 1}),
                    R"({"quantization": {"quant_algo": "FP8_PB_WO"}})", "hf_quant_config.json")),
      (Shape{128, 128}));
}

/// Of the weight x, whose scale is `shape` exponent codes.
WeightScale exponent_scale(const Shape& weight, const Shape& shape, const std::string& settings) {
  const Outcome found =
      find(with_scale(weight, "x.weight_scale", Dtype::kF8E8M0, shape),
           settings.empty() ? "" : R"({"quantization_config": )" + settings + "}");
  EXPECT_EQ(found.error, "");
  return found.table.weights.at(0).scale.value();
}

TEST(FindWeightsConfig, KeepsExponentCodesOfGroupsOf32) {
  const std::string mx = R"({"quant_method": "compressed-tensors", "format": "mxfp8-quantized",
      "config_groups": {"g": {"weights": {"strategy": "group", "group_size": 32,
      "scale_dtype": "torch.uint8"}}}})";
  for (const std::string& settings : {mx, std::string()}) {
    // Cut groups, stacks, and rows so short that their scale could be theirs alone.
    for (const Shape& weight : {Shape{16, 96}, Shape{16, 70}, Shape{2, 16, 96}, Shape{16, 32},
                                Shape{16, 8}, Shape{1, 9}}) {
      Shape groups = weight;
      groups.back() = (weight.back() + 31) / 32;
      const WeightScale scale = exponent_scale(weight, groups, settings);
      EXPECT_EQ(scale.dtype, Dtype::kF8E8M0) << to_string(weight);
      EXPECT_EQ(scale.granularity, Granularity::kBlock) << to_string(weight);
      EXPECT_EQ(scale.block_shape, (Shape{1, 32})) << to_string(weight);
      EXPECT_EQ(scale.shape, groups);
    }
  }
  const WeightScale padded = exponent_scale({16, 96}, {16, 4}, mx);
  EXPECT_EQ(padded.dtype, Dtype::kF8E8M0);
  EXPECT_EQ(padded.transform, ScaleTransform::kCrop);
}

TEST(FindWeightsConfig, WidensExponentCodesOfAllOtherTiles) {
  const std::string ue8m0 = R"({"quant_method": "fp8", "scale_fmt": "ue8m0",
                               "weight_block_size": [128, 128]})";
  for (const WeightScale& scale :
       {exponent_scale({256, 256}, {2, 2}, ue8m0), exponent_scale({1, 9}, {1, 1}, ue8m0),
        exponent_scale({16, 96}, {16, 1}, ""), exponent_scale({16, 96}, {}, ""),
        exponent_scale({16, 96}, {1, 96}, ""), exponent_scale({16, 96}, {16, 6}, "")}) {
    EXPECT_EQ(scale.dtype, Dtype::kF32);
  }
}

TEST(FindWeightsConfig, TurnsFbgemmStacks) {
  const Outcome found = find(with_scale({2, 40, 24}, "x.weight_scale", Dtype::kF32, {2, 24, 1}),
                             R"({"quantization_config": {"quant_method": "fbgemm_fp8"}})");
  ASSERT_EQ(found.error, "");
  EXPECT_EQ(found.table.weights.at(0).scale.value().granularity, Granularity::kColumn);
}

TEST(FindWeightsConfig, RefusesABrokenConfigurationOnlyWhereItIsNeeded) {
  const SafetensorsBuilder fp8 = with_scale({8, 8}, "x.weight_scale", Dtype::kF32, {});
  SafetensorsBuilder plain;
  plain.add_random("x.weight", Dtype::kBf16, {8, 8});
  for (const char* config :
       {"{", R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 128]}})",
        R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": "big"}})",
        R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [-1, 1]}})"}) {
    EXPECT_THAT(find(fp8, config).error, HasSubstr("bad_quant_metadata: ")) << config;
    EXPECT_THAT(find(fp8, config).error, HasSubstr("config.json")) << config;
    const Outcome found = find(plain, config);
    EXPECT_EQ(found.error, "") << config;
    EXPECT_EQ(found.table.warnings.size(), 1U) << config;
  }
}

std::string nested_lists(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

/// Deep enough to overflow a stack of 8 MiB wherever a parser, a copy or a printer recurses.
constexpr std::size_t kHostileLevels = 1'000'000;

TEST(FindWeightsConfig, RefusesHostileNesting) {
  const SafetensorsBuilder fp8 = with_scale({8, 8}, "x.weight_scale", Dtype::kF32, {});
  const std::string deep = nested_lists(kHostileLevels);
  for (const std::string& config :
       {R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": )" + deep + "}}",
        R"({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a":)"
        R"({"weights": {"strategy": "block", "block_structure": )" +
            deep + "}}}}}",
        R"({"anything": )" + deep + "}"}) {
    EXPECT_THAT(find(fp8, config).error,
                AllOf(HasSubstr("bad_quant_metadata: "), HasSubstr("config.json: is not JSON")));
  }
  EXPECT_EQ(find(fp8, R"({"anything": )" + nested_lists(126) + "}").error, "");
}

TEST(FindWeightsConfig, QuotesAnExcerptOfALongValue) {
  const SafetensorsBuilder fp8 = with_scale({8, 8}, "x.weight_scale", Dtype::kF32, {});
  std::string wide = "1";
  for (int i = 0; i < 100'000; ++i) {
    wide += ",1";
  }
  const std::string error =
      find(fp8, R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [)" + wide +
                    "]}}")
          .error;
  EXPECT_THAT(error, HasSubstr("weight_block_size [1,1,1,"));
  EXPECT_THAT(error, HasSubstr("(200003 bytes) is not two positive numbers"));
  EXPECT_LT(error.size(), 400U);
}

TEST(FindWeightsComfy, RefusesHostileNesting) {
  const std::string blob =
      R"({"format": "float8_e4m3fn", "convrot": )" + nested_lists(300'000) + "}";
  EXPECT_THAT(find(comfy(Dtype::kF8E4M3, blob)).error, HasSubstr("bad_quant_metadata: "));
  SafetensorsBuilder builder;
  builder.add_random("layer.weight", Dtype::kF8E4M3, {8, 8})
      .metadata("_quantization_metadata",
                R"({\"layers\": {\"layer\": )" + nested_lists(kHostileLevels) + "}}");
  EXPECT_THAT(find(builder).error, HasSubstr("bad_quant_metadata: "));
}

TEST(FindWeightsTorchao, RefusesHostileNesting) {
  for (const std::string& data :
       {nested_lists(kHostileLevels),
        R"({\"block_size\": [1, )" + nested_lists(kHostileLevels) + "]}"}) {
    SafetensorsBuilder builder;
    builder.metadata("tensor_names", R"([\"w\"])")
        .metadata("w", R"({\"_type\": \"Float8Tensor\", \"_data\": )" + data + "}")
        .add_random("_w_qdata", Dtype::kF8E4M3, {4, 4})
        .add_random("_w_scale", Dtype::kF32, {4, 1});
    EXPECT_THAT(find(builder).error, HasSubstr("bad_quant_metadata: "));
  }
}

TEST(FindWeightsTorchao, TakesADescriptionWithoutABlockSize) {
  SafetensorsBuilder builder;
  builder.metadata("tensor_names", R"([\"w\"])")
      .metadata("w", R"({\"_type\": \"Float8Tensor\", \"_data\": [1]})")
      .add_random("_w_qdata", Dtype::kF8E4M3, {4, 4})
      .add_random("_w_scale", Dtype::kF32, {4, 1});
  EXPECT_EQ(find(builder).error, "");
}

TEST(FindWeightsConfig, BelievesTheStoredDtypeOverSkipLists) {
  SafetensorsBuilder builder = with_scale({128, 128}, "x.weight_scale_inv", Dtype::kF32, {1, 1});
  builder.add_random("head.weight", Dtype::kBf16, {8, 8});
  const Outcome found =
      find(builder, R"({"quantization_config": {"quant_method": "fp8", "weight_block_size":
                      [128, 128], "modules_to_not_convert": ["x", "model.other"]}})");
  ASSERT_EQ(found.error, "");
  EXPECT_TRUE(found.table.weights.at(0).scale);
  EXPECT_FALSE(found.table.weights.at(1).scale);
}

}  // namespace
}  // namespace trash_panda::format
