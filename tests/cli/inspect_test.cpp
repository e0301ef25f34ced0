#include <string>
#include <vector>

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
};

TEST_F(Inspect, TellsBlocksAndBytes) {
  const nlohmann::json document = inspect({"model.safetensors"});
  EXPECT_EQ(document["schema"], "trash-panda/inspect/1");
  EXPECT_EQ(document["tensor_count"], 1 + 2 * kBlockCount);
  EXPECT_EQ(document["total_bytes"], kEmbeddingBytes + kBlockCount * kBlockBytes);
  EXPECT_EQ(document["outside_bytes"], kEmbeddingBytes);
  ASSERT_EQ(document["groups"].size(), 1U);
  EXPECT_EQ(document["groups"][0], (nlohmann::json{{"prefix", "layers."},
                                                   {"count", kBlockCount},
                                                   {"bytes_min", kBlockBytes},
                                                   {"bytes_max", kBlockBytes},
                                                   {"bytes_total", kBlockCount * kBlockBytes}}));
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
}

TEST_F(Inspect, OpensAFolder) {
  EXPECT_EQ(inspect({"."})["tensor_count"], 9);
  EXPECT_EQ(inspect({folder_.path().string() + "/"})["tensor_count"], 9);
}

TEST_F(Inspect, LooksIntoPacks) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  const nlohmann::json source = inspect({"model.safetensors"});
  const nlohmann::json pack = inspect({"model.panda"});
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
