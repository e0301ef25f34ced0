#include <filesystem>
#include <string>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

namespace fs = std::filesystem;

/// A checkpoint of several files, as people keep them.
class Shards : public CliTest {
 protected:
  static constexpr int kShardCount = 8;

  static std::string shard_name(int shard) {
    return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, kShardCount);
  }

  /// One layer a shard; the first shard is empty, as some writers leave one.
  void write_shards(const fs::path& folder) const {
    fs::create_directories(folder);
    std::string map;
    for (int shard = 0; shard < kShardCount; ++shard) {
      SafetensorsBuilder builder;
      if (shard > 0) {
        const std::string name = fmt::format("layers.{}.up.weight", shard - 1);
        builder.add_random(name, format::Dtype::kBf16, {64, 64});
        map += fmt::format(R"({}"{}": "{}")", map.empty() ? "" : ", ", name, shard_name(shard));
      }
      builder.write(folder / shard_name(shard));
    }
    write_text(folder / "model.safetensors.index.json", R"({"weight_map": {)" + map + "}}");
  }

  void expect_all_layers(const std::string& model) const {
    const RunResult result = run({"--json", "inspect", model});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(nlohmann::json::parse(result.out)["groups"][0]["count"], kShardCount - 1);
    EXPECT_EQ(run({"repack", model, "-o", "out.panda", "--force"}).exit_code, 0);
    EXPECT_EQ(run({"verify", "out.panda"}).exit_code, 0);
  }
};

TEST_F(Shards, MayBeEmpty) {
  write_shards(path("model"));
  expect_all_layers("model");
  fs::remove(path("model/model.safetensors.index.json"));
  expect_all_layers("model");  // By their numbers.
}

TEST_F(Shards, MayLieOnSeveralDrives) {
  write_shards(path("model"));
  for (int shard = 0; shard < kShardCount; ++shard) {
    const std::string drive = fmt::format("drive {}", shard % 3);
    fs::create_directories(path(drive));
    fs::rename(path("model") / shard_name(shard), path(drive) / shard_name(shard));
    // Links to links, absolute and relative.
    fs::create_symlink(path(drive) / shard_name(shard), path(fmt::format("link {}", shard)));
    fs::create_symlink(fmt::format("../link {}", shard), path("model") / shard_name(shard));
  }
  expect_all_layers("model");
  fs::remove(path("drive 1") / shard_name(4));
  expect_failure(run({"inspect", "model"}), 3, {shard_name(4)});
}

TEST_F(Shards, AreNeverReadOutsideTheirFolder) {
  write_shards(path("model"));
  write_model(path("evil.safetensors"));
  for (const std::string& name :
       {std::string("../evil.safetensors"), path("evil.safetensors").string(),
        std::string("a/../../evil.safetensors"), std::string("..\\\\evil.safetensors")}) {
    write_text(path("model/model.safetensors.index.json"),
               R"({"weight_map": {"embed.weight": ")" + name + R"("}})");
    for (const std::string command : {"inspect", "plan", "repack"}) {
      expect_failure(run({command, "model"}), 4, {"evil.safetensors", "outside its folder"});
    }
  }
}

TEST_F(Shards, HaveVariantsInBothSpellings) {
  for (const char* index :
       {"model.safetensors.index.fp16.json", "model.fp16.safetensors.index.json"}) {
    for (const char* shard :
         {"model.fp16-00001-of-00001.safetensors", "model-00001-of-00001.fp16.safetensors"}) {
      fs::remove_all(path("variant"));
      fs::create_directories(path("variant"));
      SafetensorsBuilder()
          .add_random("layers.0.up.weight", format::Dtype::kF16, {8, 8})
          .write(path("variant") / shard);
      write_text(path("variant") / index,
                 fmt::format(R"({{"weight_map": {{"layers.0.up.weight": "{}"}}}})", shard));
      const RunResult result = run({"--json", "inspect", "variant"});
      ASSERT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(nlohmann::json::parse(result.out)["tensor_count"], 1) << index << shard;
    }
  }
}

TEST_F(Shards, MayHaveNamesThatLookLikeOptions) {
  write_model(path("-x.safetensors"));
  EXPECT_EQ(run({"inspect", "--", "-x.safetensors"}).exit_code, 0);
  EXPECT_EQ(run({"inspect", "./-x.safetensors"}).exit_code, 0);
  EXPECT_EQ(run({"repack", "-o", "x.panda", "--", "-x.safetensors"}).exit_code, 0);
}

}  // namespace
}  // namespace trash_panda::testing
