#include <filesystem>
#include <string>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

/// A pipeline as diffusers saves one: two components with weights, two without, one left out.
class Pipeline : public CliTest {
 protected:
  Pipeline() {
    for (const char* name : {"unet", "text_encoder", "scheduler", "tokenizer"}) {
      fs::create_directories(path("pipe") / name);
    }
    write_model(path("pipe/unet/diffusion_pytorch_model.safetensors"));
    SafetensorsBuilder()
        .add_random("text_model.final.weight", format::Dtype::kF16, {8, 8})
        .write(path("pipe/text_encoder/model.safetensors"));
    write_text(path("pipe/scheduler/scheduler_config.json"), "{}");
    write_text(path("pipe/model_index.json"), R"({
      "_class_name": "PandaPipeline", "_diffusers_version": "0.35.0",
      "scheduler": ["diffusers", "PandaScheduler"],
      "text_encoder": ["transformers", "PandaTextModel"],
      "tokenizer": ["transformers", "PandaTokenizer"],
      "unet": ["diffusers", "PandaUNet"],
      "safety_checker": [null, null], "requires_safety_checker": false})");
  }

  [[nodiscard]] nlohmann::json inspect(const std::string& model,
                                       const std::map<std::string, std::string>& environment = {}) {
    const RunResult result = run({"--json", "inspect", model}, environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
};

TEST_F(Pipeline, IsInspectedByComponents) {
  for (const char* name : {"pipe", "pipe/", "pipe/model_index.json"}) {
    const nlohmann::json document = inspect(name);
    EXPECT_EQ(document["kind"], "pipeline");
    EXPECT_EQ(document["architecture"], "PandaPipeline");
    ASSERT_EQ(document["components"].size(), 4U) << name;
    const nlohmann::json& unet = document["components"][3];
    EXPECT_EQ(unet["name"], "unet");
    EXPECT_EQ(unet["class"], "PandaUNet");
    EXPECT_EQ(unet["model"], "pipe/unet");
    EXPECT_EQ(unet["tensor_count"], 9);
    EXPECT_EQ(unet["total_bytes"], kEmbeddingBytes + kBlockCount * kBlockBytes);
    EXPECT_EQ(unet["dtypes"][0]["dtype"], "BF16");
    EXPECT_EQ(unet["groups"][0]["prefix"], "layers.");
    EXPECT_EQ(document["components"][0]["tensor_count"], 0);
    EXPECT_EQ(document["components"][0]["error"], "");
    EXPECT_EQ(document["total_bytes"], unet["total_bytes"].get<std::uint64_t>() + 128);
    EXPECT_EQ(document["groups"][0]["prefix"], "unet:layers.");
    EXPECT_EQ(document["tensors"][0]["name"], "unet:embed.weight");
    EXPECT_EQ(document["warnings"].size(), 0U) << document["warnings"];
  }
}

TEST_F(Pipeline, SaysWhatToNameToPlanAComponent) {
  const RunResult result = run({"inspect", "pipe"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* text : {"PandaPipeline", "pipe/unet", "pipe/text_encoder", "no weights"}) {
    EXPECT_THAT(result.out, HasSubstr(text));
  }
  const std::string component = inspect("pipe")["components"][1]["model"];
  EXPECT_EQ(run({"plan", component}).exit_code, 0);
}

TEST_F(Pipeline, IsNotPlannedOrPackedAsAWhole) {
  for (const std::string command : {"plan", "repack"}) {
    for (const char* name : {"pipe", "pipe/model_index.json"}) {
      const RunResult result = run({command, name});
      expect_failure(result, 2, {"model_index.json", "text_encoder, unet"});
      EXPECT_THAT(result.err, HasSubstr("pipe/text_encoder, "));
      EXPECT_THAT(result.err, HasSubstr("pipe/unet"));
    }
  }
}

TEST_F(Pipeline, ShowsTheRestWhereOneComponentIsBroken) {
  write_text(path("pipe/text_encoder/model.safetensors"), "short");
  fs::remove_all(path("pipe/tokenizer"));
  const nlohmann::json document = inspect("pipe");
  EXPECT_THAT(document["components"][1]["error"].get<std::string>(), HasSubstr("too short"));
  EXPECT_EQ(document["components"][3]["tensor_count"], 9);
  EXPECT_THAT(document["warnings"].dump(), HasSubstr("text_encoder can't be read"));
  EXPECT_THAT(document["warnings"].dump(), HasSubstr("tokenizer: model_index.json names it"));
}

TEST_F(Pipeline, IsRefusedWhereItsIndexIsBroken) {
  write_text(path("pipe/model_index.json"), "[]");
  expect_failure(run({"inspect", "pipe"}), 4, {"model_index.json", "no JSON object"});
  write_text(path("pipe/model_index.json"),
             R"({"unet": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}");
  expect_failure(run({"inspect", "pipe"}), 4, {"model_index.json", "nested too deep"});
  write_text(path("pipe/model_index.json"), R"({"../unet": ["diffusers", "PandaUNet"]})");
  expect_failure(run({"inspect", "pipe"}), 4, {"model_index.json", "../unet"});
}

TEST_F(Pipeline, ChecksTheScalesOfItsComponentsWhenAsked) {
  SafetensorsBuilder builder;
  for (int layer = 0; layer < 2100; ++layer) {
    builder.add(fmt::format("layers.{}.weight", layer), format::Dtype::kF8E4M3, {1, 1}, "x")
        .add(fmt::format("layers.{}.weight_scale", layer), format::Dtype::kF32, {},
             std::string(4, layer == 7 ? '\0' : '\x3f'));
  }
  builder.write(path("pipe/text_encoder/model.safetensors"));
  EXPECT_EQ(inspect("pipe")["scales"]["values_checked"], false);
  EXPECT_THAT(inspect("pipe")["warnings"].dump(), HasSubstr("text_encoder: the values of 2,100"));
  const RunResult result = run({"--json", "inspect", "pipe", "--check-scales"});
  const nlohmann::json scales = nlohmann::json::parse(result.out)["scales"];
  EXPECT_EQ(scales["values_checked"], true);
  EXPECT_EQ(scales["special"][0]["name"], "text_encoder:layers.7.weight_scale");
}

TEST_F(Pipeline, RefusesAGroupOfWhichComponent) {
  expect_failure(run({"inspect", "pipe", "--group", "layers"}), 2, {"--group", "component"});
}

TEST_F(Pipeline, IsFoundWhereTheHubKeepsIt) {
  fs::create_directories(path("cache/huggingface/hub/models--org--panda/snapshots"));
  fs::rename(path("pipe"), path("cache/huggingface/hub/models--org--panda/snapshots/main"));
  const std::string cache = path("cache").string();
  const std::string absent = path("absent").string();
  using Environment = std::map<std::string, std::string>;
  for (const Environment& environment :
       {Environment{{"HF_HUB_CACHE", cache + "/huggingface/hub"}, {"HF_HOME", absent}},
        Environment{{"HUGGINGFACE_HUB_CACHE", cache + "/huggingface/hub"}, {"HF_HOME", absent}},
        Environment{{"HF_HOME", cache + "/huggingface"}, {"XDG_CACHE_HOME", absent}},
        Environment{{"XDG_CACHE_HOME", cache}}}) {
    Environment set = {{"HOME", absent}};
    set.insert(environment.begin(), environment.end());
    EXPECT_EQ(inspect("org/panda", set)["kind"], "pipeline");
  }
  expect_failure(run({"inspect", "org/panda"}, {{"XDG_CACHE_HOME", absent}}), 3, {"hf download"});
}

TEST_F(Pipeline, IsFoundInTheCacheWithItsComponents) {
  const fs::path repository = path("hub/models--org--panda");
  fs::create_directories(repository / "snapshots");
  fs::create_directories(repository / "refs");
  write_text(repository / "refs/main", "0123abcd");
  fs::rename(path("pipe"), repository / "snapshots/0123abcd");
  // As the cache has them: links to blobs that are named by their hash.
  const fs::path file = repository / "snapshots/0123abcd/unet/diffusion_pytorch_model.safetensors";
  fs::create_directories(repository / "blobs");
  fs::rename(file, repository / "blobs/00ff");
  fs::create_symlink("../../../blobs/00ff", file);
  const std::map<std::string, std::string> environment = {{"HF_HUB_CACHE", path("hub").string()}};
  const nlohmann::json document = inspect("org/panda", environment);
  EXPECT_EQ(document["components"][3]["model"], "org/panda:unet");
  EXPECT_EQ(document["components"][3]["tensor_count"], 9);
  EXPECT_EQ(inspect("org/panda:unet", environment)["tensor_count"], 9);
  EXPECT_EQ(inspect("org/panda@0123abcd:unet", environment)["tensor_count"], 9);
  EXPECT_EQ(run({"plan", "org/panda:unet"}, environment).exit_code, 0);
  EXPECT_EQ(run({"repack", "org/panda:unet", "-o", "unet.panda"}, environment).exit_code, 0);
  expect_failure(run({"plan", "org/panda:absent"}, environment), 3, {"hf download org/panda"});
}

}  // namespace
}  // namespace trash_panda::testing
