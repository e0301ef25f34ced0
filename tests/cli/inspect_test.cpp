#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Inspect : public CliTest {
 protected:
  [[nodiscard]] nlohmann::json inspect(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"inspect", "--json"});
    const RunResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return nlohmann::json::parse(result.out);
  }

  struct Layout {
    std::string format;
    std::string scale_dtype;
    std::string scale_name;
    std::uint64_t tensor_count;
    std::uint64_t bytes;
  };
  static nlohmann::json layouts(const std::vector<Layout>& expected) {
    nlohmann::json array = nlohmann::json::array();
    for (const Layout& layout : expected) {
      array.push_back({{"format", layout.format},
                       {"scale_dtype", layout.scale_dtype},
                       {"scale_name", layout.scale_name},
                       {"tensor_count", layout.tensor_count},
                       {"bytes", layout.bytes}});
    }
    return array;
  }

  /// Two fp8 layers with DeepSeek's scales beside a bf16 norm each, and what belongs to no layer.
  void write_fp8_model(std::string_view name = "fp8.safetensors") const {
    SafetensorsBuilder builder;
    builder.add_random("model.embed_tokens.weight", format::Dtype::kBf16, {64, 32});
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
      const std::string prefix = layer;
      builder.add_random(prefix + "up.weight", format::Dtype::kF8E4M3, {256, 128})
          .add_random(prefix + "up.weight_scale_inv", format::Dtype::kF32, {2, 1})
          .add_random(prefix + "up.input_scale", format::Dtype::kF32, {})
          .add_random(prefix + "norm.weight", format::Dtype::kBf16, {128});
    }
    builder.write(path(name));
  }

  [[nodiscard]] std::string text(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "inspect");
    const RunResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
};

TEST_F(Inspect, TellsBlocksAndBytes) {
  const nlohmann::json document = inspect({"model.safetensors"});
  EXPECT_EQ(document["schema"], "trash-panda/inspect/1");
  EXPECT_EQ(document["tensor_count"], 1 + 2 * kBlockCount);
  EXPECT_EQ(document["total_bytes"], kEmbeddingBytes + kBlockCount * kBlockBytes);
  EXPECT_EQ(document["outside_bytes"], kEmbeddingBytes);
  ASSERT_EQ(document["groups"].size(), 1U);
  EXPECT_EQ(
      document["groups"][0],
      (nlohmann::json{
          {"prefix", "layers."},
          {"count", kBlockCount},
          {"bytes_min", kBlockBytes},
          {"bytes_max", kBlockBytes},
          {"bytes_total", kBlockCount * kBlockBytes},
          {"layouts", layouts({{"bf16", "", "", kBlockCount * 2, kBlockCount * kBlockBytes}})}}));
  ASSERT_EQ(document["files"].size(), 1U);
  EXPECT_EQ(document["files"][0]["name"], "model.safetensors");
  EXPECT_EQ(document["dtypes"][0]["dtype"], "BF16");
  EXPECT_TRUE(document["warnings"].is_array());
  EXPECT_TRUE(document["formats"].is_array());
}

TEST_F(Inspect, ReadsLikeATable) {
  const RunResult result = run({"inspect", "model.safetensors"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, StartsWith("model.safetensors  46.1 kB  9 tensors in 1 file\n"));
  EXPECT_THAT(result.out, HasSubstr("layers."));
  EXPECT_THAT(result.out, HasSubstr("outside"));
  EXPECT_THAT(result.out, Not(HasSubstr(" \n")));
}

TEST_F(Inspect, ListsTensorsByPatternAndSize) {
  const auto listed = [&](std::vector<std::string> arguments) {
    arguments.emplace_back("model.safetensors");
    std::vector<std::string> names;
    const nlohmann::json document = inspect(arguments);
    for (const auto& tensor : document["tensors"]) {
      names.push_back(tensor["name"]);
    }
    return names;
  };
  EXPECT_THAT(listed({"--match", "layers.[12].up.bias"}),
              ElementsAre("layers.1.up.bias", "layers.2.up.bias"));
  EXPECT_THAT(listed({"--top", "1"}), ElementsAre("embed.weight"));
  EXPECT_THAT(listed({"--top", "0"}), ElementsAre());
  EXPECT_THAT(listed({"--top=1", "--match=*.bias"}), ElementsAre("layers.0.up.bias"));
  EXPECT_EQ(listed({"--tensors"}).size(), 9U);
  expect_failure(run({"inspect", "model.safetensors", "--match", "nothing.*"}), 2,
                 {"'nothing.*'", "--tensors"});
  expect_failure(run({"inspect", "model.safetensors", "--top", "-1"}), 2, {"--top", "'-1'"});
}

TEST_F(Inspect, GroupReplacesTheSearch) {
  EXPECT_EQ(inspect({"model.safetensors", "--group", "layers"})["groups"].size(), 1U);
  expect_failure(run({"inspect", "model.safetensors", "--group", "absent"}), 2, {"absent"});
}

TEST_F(Inspect, NamesTheArchitectureOfItsConfig) {
  write_text(path("config.json"), R"({"architectures": ["PandaForCausalLM"]})");
  EXPECT_EQ(inspect({"model.safetensors"})["architecture"], "PandaForCausalLM");
  write_text(path("config.json"), R"({"_class_name": "PandaTransformer2DModel"})");
  EXPECT_EQ(inspect({"model.safetensors"})["architecture"], "PandaTransformer2DModel");
  write_text(path("config.json"), "not json");
  EXPECT_EQ(inspect({"model.safetensors"})["architecture"], "");
  write_text(path("config.json"), R"({"model_type": "panda"})");
  const nlohmann::json document = inspect({"model.safetensors"});
  EXPECT_EQ(document["architecture"], "panda");
  EXPECT_EQ(document["architecture_source"], "config.json");
}

TEST_F(Inspect, GuessesTheArchitectureByTensorNames) {
  SafetensorsBuilder builder;
  for (const char* block : {"0", "1", "2"}) {
    const std::string number = block;
    builder
        .add_random("double_blocks." + number + ".img_mlp.0.weight", format::Dtype::kBf16, {4, 4})
        .add_random("single_blocks." + number + ".linear1.weight", format::Dtype::kBf16, {4, 4});
  }
  builder.add_random("img_in.weight", format::Dtype::kBf16, {4, 4}).write(path("x.safetensors"));
  const nlohmann::json document = inspect({"x.safetensors"});
  EXPECT_EQ(document["architecture"], "FLUX transformer (original names)");
  EXPECT_EQ(document["architecture_source"], "tensor names");
  EXPECT_THAT(text({"x.safetensors"}), HasSubstr("(by its tensor names)"));
}

TEST_F(Inspect, BelievesTheMetadataOverNames) {
  SafetensorsBuilder builder;
  builder.add_random("img_in.weight", format::Dtype::kBf16, {4, 4})
      .metadata("modelspec.architecture", "stable-panda-v1")
      .write(path("x.safetensors"));
  EXPECT_EQ(inspect({"x.safetensors"})["architecture"], "stable-panda-v1");
  EXPECT_EQ(inspect({"x.safetensors"})["architecture_source"], "__metadata__");
}

TEST_F(Inspect, TellsHowEachGroupIsScaled) {
  write_fp8_model();
  const nlohmann::json document = inspect({"fp8.safetensors", "--tensors"});
  EXPECT_EQ(document["groups"][0]["layouts"],
            layouts({{"bf16", "", "", 2, 512},
                     {"fp8 (scale per 128x128 block)", "F32", "weight_scale_inv", 2, 65536}}));
  EXPECT_EQ(document["outside_layouts"], layouts({{"bf16", "", "", 1, 4096}}));
  EXPECT_EQ(document["left_out"],
            (nlohmann::json{"model.layers.0.up.input_scale", "model.layers.1.up.input_scale"}));
  EXPECT_EQ(document["scales"]["count"], 2);
  EXPECT_EQ(document["scales"]["bytes"], 16);
  std::map<std::string, nlohmann::json> tensors;
  for (const auto& tensor : document["tensors"]) {
    tensors[tensor["name"]] = tensor;
  }
  EXPECT_EQ(tensors["model.layers.1.up.weight"]["scale"], "model.layers.1.up.weight_scale_inv");
  EXPECT_EQ(tensors["model.layers.1.up.weight"]["block"], "model.layers.1");
  EXPECT_EQ(tensors["model.layers.1.up.weight_scale_inv"]["role"], "scale");
  EXPECT_EQ(tensors["model.layers.1.up.input_scale"]["role"], "left out");
  EXPECT_EQ(tensors["model.embed_tokens.weight"]["block"], "");
  EXPECT_THAT(
      text({"fp8.safetensors"}),
      HasSubstr("65.5 kB fp8 (scale per 128x128 block) by F32 weight_scale_inv, 512 B bf16"));
}

TEST_F(Inspect, TellsTheSameOfAPack) {
  write_fp8_model();
  ASSERT_EQ(run({"repack", "fp8.safetensors"}).exit_code, 0);
  const nlohmann::json pack = inspect({"fp8.panda"});
  EXPECT_EQ(pack["groups"][0]["layouts"],
            layouts({{"bf16", "", "", 2, 512},
                     {"fp8 (scale per 128x128 block)", "F32", "weight_scale", 2, 65536}}));
  EXPECT_EQ(pack["scales"]["count"], 2);
}

TEST_F(Inspect, TellsTies) {
  SafetensorsBuilder builder;
  builder.add_random("model.embed_tokens.weight", format::Dtype::kBf16, {64, 32})
      .add_random("encoder.embed.weight", format::Dtype::kBf16, {4, 4})
      .metadata("decoder.embed.weight", "encoder.embed.weight")
      .write(path("tied.safetensors"));
  write_text(path("config.json"),
             R"({"architectures": ["PandaForCausalLM"], "tie_word_embeddings": true})");
  const nlohmann::json tied = inspect({"tied.safetensors"});
  EXPECT_EQ(tied["total_bytes"], 64 * 32 * 2 + 4 * 4 * 2);  // Once, whatever its names.
  EXPECT_EQ(tied["tensors"].size(), 2U);
  const nlohmann::json& ties = tied["ties"];
  ASSERT_EQ(ties.size(), 2U);
  EXPECT_EQ(ties[0], (nlohmann::json{{"name", "decoder.embed.weight"},
                                     {"target", "encoder.embed.weight"},
                                     {"source", "__metadata__"}}));
  EXPECT_EQ(ties[1], (nlohmann::json{{"name", "lm_head.weight"},
                                     {"target", "model.embed_tokens.weight"},
                                     {"source", "config.json"}}));
  EXPECT_THAT(text({"tied.safetensors"}),
              HasSubstr("tied     lm_head.weight is model.embed_tokens.weight (config.json)\n"));
}

TEST_F(Inspect, RemarksOnAHeadThatIsMissingOrTooMuch) {
  SafetensorsBuilder headless;
  headless.add_random("model.embed_tokens.weight", format::Dtype::kBf16, {64, 32})
      .write(path("headless.safetensors"));
  SafetensorsBuilder whole;
  whole.add_random("model.embed_tokens.weight", format::Dtype::kBf16, {64, 32})
      .add_random("lm_head.weight", format::Dtype::kBf16, {64, 32})
      .write(path("whole.safetensors"));
  const auto warnings = [this](const std::string& config, const std::string& model) {
    write_text(path("config.json"), R"({"architectures": ["PandaForCausalLM"])" + config + "}");
    return inspect({model})["warnings"].dump();
  };
  const std::string tied = R"(, "tie_word_embeddings": true)";
  const std::string apart = R"(, "tie_word_embeddings": false)";
  EXPECT_THAT(warnings("", "headless.safetensors"), HasSubstr("does not say"));
  EXPECT_THAT(warnings(apart, "headless.safetensors"), HasSubstr("denies"));
  EXPECT_EQ(warnings(tied, "headless.safetensors"), "[]");
  EXPECT_THAT(warnings(tied, "whole.safetensors"), HasSubstr("lm_head.weight is stored as well"));
  EXPECT_EQ(warnings(apart, "whole.safetensors"), "[]");
  EXPECT_EQ(warnings("", "whole.safetensors"), "[]");
}

TEST_F(Inspect, RemarksOnBlocksThatAreMissing) {
  SafetensorsBuilder builder;
  for (const char* block : {"layers.0", "layers.1", "layers.4"}) {
    builder.add_random(std::string(block) + ".up.weight", format::Dtype::kBf16, {64, 64});
  }
  builder.write(path("gap.safetensors"));
  EXPECT_EQ(inspect({"gap.safetensors"})["warnings"],
            nlohmann::json::array({"the blocks layers. have no number 2, 3"}));
}

TEST_F(Inspect, ChecksManyScalesWhenAsked) {
  SafetensorsBuilder builder;
  for (int layer = 0; layer < 2100; ++layer) {
    const std::string prefix = fmt::format("layers.{}.up.", layer);
    builder.add(prefix + "weight", format::Dtype::kF8E4M3, {1, 1}, "x")
        .add(prefix + "weight_scale", format::Dtype::kF32, {},
             layer == 7 ? std::string("\0\0\xc0\x7f", 4) : std::string("\0\0\x80\x3f", 4));
  }
  builder.write(path("many.safetensors"));
  const nlohmann::json quick = inspect({"many.safetensors"});
  EXPECT_EQ(quick["scales"]["values_checked"], false);
  EXPECT_THAT(quick["warnings"].dump(), HasSubstr("--check-scales"));
  const nlohmann::json full = inspect({"many.safetensors", "--check-scales"});
  EXPECT_EQ(full["scales"]["values_checked"], true);
  EXPECT_EQ(full["scales"]["special"].size(), 1U);
  EXPECT_EQ(full["scales"]["special"][0],
            (nlohmann::json{{"name", "layers.7.up.weight_scale"}, {"value", "NaN"}}));
  EXPECT_THAT(full["warnings"].dump(), HasSubstr("layers.7.up.weight_scale"));
  EXPECT_THAT(full["warnings"].dump(), Not(HasSubstr("--check-scales")));
}

TEST_F(Inspect, OpensAFolder) {
  EXPECT_EQ(inspect({"."})["tensor_count"], 9);
  EXPECT_EQ(inspect({folder_.path().string() + "/"})["tensor_count"], 9);
}

TEST_F(Inspect, LooksIntoPacks) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  const nlohmann::json source = inspect({"model.safetensors"});
  const nlohmann::json pack = inspect({"model.panda"});
  expect_failure(run({"inspect", "--check-scales", "model.panda"}), 2, {"--check-scales"});
  EXPECT_EQ(source["kind"], "checkpoint");
  EXPECT_EQ(pack["kind"], "pack");
  for (const char* member :
       {"fingerprint", "tensor_count", "total_bytes", "outside_bytes", "groups"}) {
    EXPECT_EQ(pack[member], source[member]) << member;
  }
}

TEST_F(Inspect, TakesNamesThatNeedQuoting) {
  const std::string name = "a b\n\xc3\xa9 'x'.safetensors";
  write_model(path(name));
  const RunResult result = run({"inspect", name});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("a b\\x0a\xc3\xa9 'x'.safetensors  "));
  EXPECT_EQ(inspect({name})["tensor_count"], 9);
}

}  // namespace
}  // namespace trash_panda::testing
