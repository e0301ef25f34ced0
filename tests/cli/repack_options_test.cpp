// Options of repack that say where shards go, how they are written and what is stored.

#include <filesystem>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

using RepackDirect = CliTest;

/// A checkpoint of F32 matrices, of which one is BF16 in disguise.
class RepackDtype : public CliTest {
 protected:
  RepackDtype() {
    SafetensorsBuilder builder;
    std::string narrow;
    for (int i = 0; i < 128 * 96; ++i) {
      narrow += bytes_of(std::vector<float>{static_cast<float>(i % 200) / 64.0F});
    }
    builder.add("layers.0.weight", format::Dtype::kF32, {128, 96}, narrow);
    std::vector<float> wide(128 * 96);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      wide[i] = static_cast<float>(i % 500) / 999.0F;
    }
    builder.add("layers.1.bias", format::Dtype::kF32, {128},
                bytes_of(std::vector<float>(128, 0.1F)));
    builder.add("layers.1.weight", format::Dtype::kF32, {128, 96}, bytes_of(wide));
    builder.write(path("wide.safetensors"));
  }

  /// Packs, verifies and unpacks; says which dtypes the weights have in the checkpoint that
  /// results.
  std::string dtypes_after(const std::vector<std::string>& options) {
    std::filesystem::remove_all(path("wide.panda"));
    std::filesystem::remove_all(path("back"));
    std::vector<std::string> words = {"repack", "wide.safetensors", "--verify", "--json"};
    words.insert(words.end(), options.begin(), options.end());
    const RunResult packed = run(words);
    EXPECT_EQ(packed.exit_code, 0) << packed.err;
    document_ = nlohmann::json::parse(packed.out);
    EXPECT_EQ(run({"verify", "wide.panda", "--source", "wide.safetensors"}).exit_code, 0);
    EXPECT_EQ(run({"unpack", "wide.panda", "-o", "back"}).exit_code, 0);
    const RunResult inspected = run({"inspect", "back", "--tensors", "--json"});
    std::set<std::string> dtypes;
    const auto listed = nlohmann::json::parse(inspected.out);
    for (const auto& tensor : listed["tensors"]) {
      dtypes.insert(tensor["name"].get<std::string>().substr(7) + " " +
                    tensor["dtype"].get<std::string>());
    }
    return fmt::format("{}", fmt::join(dtypes, " "));
  }

  nlohmann::json document_;
};

TEST_F(RepackDtype, NarrowsWithoutLossUnlessToldToLeaveAllAsItIs) {
  const std::string kept = "0.weight F32 1.bias F32 1.weight F32";
  EXPECT_EQ(dtypes_after({}), kept);
  EXPECT_EQ(document_["narrowed_count"], 1);
  const auto narrowed_bytes = document_["total_bytes"].get<std::uint64_t>();
  EXPECT_TRUE(read_text(path("back/wide.safetensors"))
                  .ends_with(read_text(path("wide.safetensors")).substr(1000)));
  EXPECT_EQ(dtypes_after({"--compress", "none"}), kept);
  EXPECT_EQ(document_["narrowed_count"], 0);
  EXPECT_EQ(document_["total_bytes"].get<std::uint64_t>() - narrowed_bytes, 128 * 96 * 2);
}

TEST_F(RepackDtype, RoundsLargeMatricesWhenAsked) {
  EXPECT_EQ(dtypes_after({"--dtype", "bf16"}), "0.weight F32 1.bias F32 1.weight BF16");
  EXPECT_EQ(document_["rounded_count"], 1);
  EXPECT_EQ(dtypes_after({"--dtype", "compute", "--compress", "none"}),
            "0.weight BF16 1.bias F32 1.weight BF16");
  EXPECT_EQ(dtypes_after({"--dtype", "fp8", "--compress", "max"}),
            "0.weight F8_E4M3 0.weight_scale F32 1.bias F32 1.weight F8_E4M3 1.weight_scale F32");
  EXPECT_EQ(document_["rounded_count"], 2);
  expect_failure(run({"repack", "wide.safetensors", "-o", "x", "--dtype", "int4"}), 2, {"--dtype"});
}

TEST_F(RepackDtype, TellsSizesWithoutReadingItAll) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--dtype", "fp8"}, {"--dtype", "keep"}}) {
    std::vector<std::string> words = {"repack", "wide.safetensors", "-n", "-o", "dry", "--json"};
    words.insert(words.end(), options.begin(), options.end());
    const auto dry = nlohmann::json::parse(run(words).out);
    dtypes_after(options);
    EXPECT_EQ(dry["total_bytes"], document_["total_bytes"]);
    EXPECT_EQ(dry["narrowed_count"], document_["narrowed_count"]);
  }
}

TEST_F(RepackDirect, ReadsAndWritesThroughThePageCacheWhenAsked) {
  ASSERT_EQ(run({"repack", "model.safetensors", "--direct", "off"}).exit_code, 0);
  ASSERT_EQ(run({"repack", "model.safetensors", "-o", "auto"}).exit_code, 0);
  for (const auto& entry : std::filesystem::directory_iterator(path("auto"))) {
    EXPECT_TRUE(read_text(entry.path()) ==
                read_text(path("model.panda") / entry.path().filename()));
  }
  expect_failure(run({"repack", "model.safetensors", "-o", "x", "--direct", "maybe"}), 2,
                 {"--direct"});
}

/// A pack whose disk tier is in a folder of its own.
class RepackDiskDir : public CliTest {
 protected:
  RepackDiskDir() {
    std::filesystem::create_directory(path("fast"));
    EXPECT_EQ(
        run({"plan", "model.safetensors", "--assign", "disk=0-2", "-o", "plan.toml"}).exit_code, 0);
  }

  RunResult repack(const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"repack",    "model.safetensors", "--plan",
                                      "plan.toml", "--disk-dir",        "fast"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  [[nodiscard]] std::vector<std::string> fast_names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path("fast"))) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
};

TEST_F(RepackDiskDir, PutsTheDiskShardThere) {
  const RunResult result = repack();
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(fast_names(),
              ElementsAre(MatchesRegex("model.panda.[0-9a-f]+.disk-00001.safetensors")));
  EXPECT_TRUE(std::filesystem::is_symlink(path("model.panda/disk-00001.safetensors")));
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
  EXPECT_EQ(run({"verify", "model.panda", "--source", "model.safetensors"}).exit_code, 0);
}

TEST_F(RepackDiskDir, RemovesItWithThePackThatIsReplaced) {
  ASSERT_EQ(repack().exit_code, 0);
  const std::vector<std::string> before = fast_names();
  const RunResult result = repack({"--force"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(fast_names().size(), 1U);
  EXPECT_NE(fast_names(), before);
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
}

TEST_F(RepackDiskDir, LeavesItForThePackThatWasCopied) {
  ASSERT_EQ(repack().exit_code, 0);
  std::filesystem::copy(
      path("model.panda"), path("copy.panda"),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  const RunResult result =
      run({"repack", "model.safetensors", "-o", "copy.panda", "--force", "--reserve", "0"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("another pack may need it"));
  EXPECT_EQ(fast_names().size(), 1U);
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
  EXPECT_EQ(run({"verify", "copy.panda"}).exit_code, 0);
}

TEST_F(RepackDiskDir, KeepsItForAnotherPlan) {
  ASSERT_EQ(repack().exit_code, 0);
  ASSERT_EQ(run({"plan", "model.safetensors", "--assign", "ram=0-2", "-o", "other.toml"}).exit_code,
            0);
  const RunResult result = run({"repack", "model.panda", "--plan", "other.toml"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(fast_names().size(), 1U);
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
  expect_failure(run({"repack", "model.panda", "--plan", "plan.toml", "--disk-dir", "fast"}), 2,
                 {"--disk-dir"});
}

TEST_F(RepackDiskDir, SaysWhatBothDrivesHaveFree) {
  const auto here = nlohmann::json::parse(repack({"-n", "--json"}).out);
  EXPECT_EQ(here["drives"].size(), 1U);  // One drive with two folders.
  const std::filesystem::path memory = "/dev/shm";
  struct stat disk = {};
  struct stat other = {};
  if (::stat(memory.c_str(), &other) != 0 || ::access(memory.c_str(), W_OK) != 0 ||
      ::stat(folder_.path().c_str(), &disk) != 0 || disk.st_dev == other.st_dev) {
    GTEST_SKIP() << memory << " is no other drive that can be written to";
  }
  const std::vector<std::string> words = {"repack",    "model.safetensors", "-n",  "--plan",
                                          "plan.toml", "--disk-dir",        memory};
  EXPECT_THAT(
      run(words).out,
      ::testing::ContainsRegex("are free on its drive, .* on that of /dev/shm, where .* of it go"));
  std::vector<std::string> as_json = words;
  as_json.emplace_back("--json");
  const auto document = nlohmann::json::parse(run(as_json).out);
  ASSERT_EQ(document["drives"].size(), 2U);
  EXPECT_EQ(document["drives"][1]["folder"].get<std::string>(), memory.string());
  EXPECT_EQ(document["drives"][0]["free_bytes"], document["free_bytes"]);
  EXPECT_GT(document["drives"][1]["free_bytes"], 0U);
  // Three blocks and the header of their shard there; the fourth and the base here.
  EXPECT_GT(document["drives"][1]["needed_bytes"], 3 * kBlockBytes);
  EXPECT_LT(document["drives"][1]["needed_bytes"].get<std::uint64_t>(),
            here["drives"][0]["needed_bytes"].get<std::uint64_t>() - kEmbeddingBytes);
}

TEST_F(RepackDiskDir, HasToBeThere) {
  expect_failure(run({"repack", "model.safetensors", "--disk-dir", "absent"}), 7,
                 {"absent", "choose another place with --disk-dir"});
}

}  // namespace
}  // namespace trash_panda::testing
