// Giving the blocks of a pack other tiers.

#include <filesystem>
#include <string>
#include <vector>

#include "trash_panda/base/file_system.h"

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A pack, and a plan with its blocks in other tiers.
class Retier : public CliTest {
 protected:
  Retier() {
    EXPECT_EQ(
        run({"plan", "model.safetensors", "--max-vram=0", "--assign", "ram=0-3", "-o", "ram.toml"})
            .exit_code,
        0);
    EXPECT_EQ(run({"plan", "model.safetensors", "--max-vram=0", "--assign", "ram=0-2", "--assign",
                   "disk=-1", "-o", "disk.toml"})
                  .exit_code,
              0);
    EXPECT_EQ(run({"repack", "model.safetensors", "--plan", "ram.toml"}).exit_code, 0);
  }
};

TEST_F(Retier, GivesBlocksAnotherTierInPlaceAndMovesNoWeight) {
  const std::string shard = read_text(path("model.panda/ram-00001.safetensors"));
  const auto written_at =
      std::filesystem::last_write_time(path("model.panda/ram-00001.safetensors"));
  const RunResult result = run({"repack", "model.panda", "--plan", "disk.toml", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["moved_extent_count"], 1);
  EXPECT_EQ(document["tiers"]["disk"]["extent_count"], 1);
  EXPECT_EQ(document["tiers"]["ram"]["extent_count"], 3);
  EXPECT_EQ(read_text(path("model.panda/plan.toml")), read_text(path("disk.toml")));
  EXPECT_EQ(read_text(path("model.panda/ram-00001.safetensors")), shard);
  EXPECT_EQ(std::filesystem::last_write_time(path("model.panda/ram-00001.safetensors")),
            written_at);
  const auto manifest = nlohmann::json::parse(read_text(path("model.panda/manifest.json")));
  EXPECT_EQ(manifest["extents"].back()["tier"], "disk");
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
  EXPECT_THAT(names(), ElementsAre("disk.toml", "model.panda", "model.safetensors", "ram.toml"));
}

TEST_F(Retier, ReplacesAPackWhoseWriterWasKilledRightBeforeItsEnd) {
  const auto is_marked = [&](const char* pack) {
    return std::filesystem::exists(path(pack) / ".trash-panda-partial");
  };
  write_text(path("model.panda/.trash-panda-partial"), "journal");
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
  const RunResult retiered = run({"repack", "model.panda", "--plan", "disk.toml"});
  EXPECT_EQ(retiered.exit_code, 0) << retiered.err;
  EXPECT_FALSE(is_marked("model.panda"));
  write_text(path("model.panda/.trash-panda-partial"), "journal");
  // What the killed run had not yet put in the place of the old pack.
  std::filesystem::copy(path("model.panda"), path(".model.panda.new"));
  const RunResult forced =
      run({"repack", "model.safetensors", "--plan", "ram.toml", "--force", "--reserve", "0"});
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_FALSE(is_marked("model.panda"));
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
  EXPECT_THAT(names(), ElementsAre("disk.toml", "model.panda", "model.safetensors", "ram.toml"));
}

TEST_F(Retier, ReplacesThePackThatItRunsIn) {
  for (const std::string name : {".", "../model.panda/.", "../model.panda/../model.panda"}) {
    const std::string plan = name == "." ? "../disk.toml" : "../ram.toml";
    const RunResult result =
        run_program({"repack", name, "--plan", plan},
                    {.folder = path("model.panda"), .environment = {}, .program = {}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
    EXPECT_THAT(names(), ElementsAre("disk.toml", "model.panda", "model.safetensors", "ram.toml"));
  }
}

TEST_F(Retier, WritesElsewhereAndLeavesThePack) {
  const std::string before = read_text(path("model.panda/manifest.json"));
  const RunResult result = run({"repack", "model.panda", "--plan", "disk.toml", "-o", "other"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 of 5 extents have another tier"));
  EXPECT_EQ(read_text(path("model.panda/manifest.json")), before);
  EXPECT_EQ(run({"verify", "other"}).exit_code, 0);
  std::filesystem::remove_all(path("model.panda"));
  EXPECT_EQ(run({"verify", "other"}).exit_code, 0);
}

TEST_F(Retier, FollowsTheLinksOfAPackToItsShards) {
  std::filesystem::create_directories(path("away/deep"));
  std::filesystem::rename(path("model.panda"), path("away/deep/model.panda"));
  std::filesystem::rename(path("away/deep/model.panda/ram-00001.safetensors"),
                          path("away/ram-00001.safetensors"));
  std::filesystem::create_symlink("../../ram-00001.safetensors",
                                  path("away/deep/model.panda/ram-00001.safetensors"));
  EXPECT_EQ(run({"verify", "away/deep/model.panda"}).exit_code, 0);
  const RunResult other =
      run({"repack", "away/deep/model.panda", "--plan", "disk.toml", "-o", "other.panda"});
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(run({"verify", "other.panda"}).exit_code, 0);
  const RunResult in_place = run({"repack", "away/deep/model.panda", "--plan", "disk.toml"});
  EXPECT_EQ(in_place.exit_code, 0) << in_place.err;
  EXPECT_EQ(run({"verify", "away/deep/model.panda"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(path("away/ram-00001.safetensors")));
}

TEST_F(Retier, MakesNoPackOfOneThatLacksAShard) {
  std::filesystem::resize_file(path("model.panda/ram-00001.safetensors"), 4096);
  const RunResult result =
      run({"repack", "model.panda", "--plan", "disk.toml", "-o", "other.panda"});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_FALSE(std::filesystem::exists(path("other.panda")));
  EXPECT_FALSE(std::filesystem::exists(path("other.panda.partial")));
}

TEST_F(Retier, RefusesWhatItWouldNotDo) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--verify"},
                                             {"--resume"},
                                             {"--no-resume"},
                                             {"--direct", "on"},
                                             {"--reserve", "100TB"},
                                             {"--limit-rate", "1MB"}}) {
    std::vector<std::string> line = {"repack", "model.panda", "--plan", "disk.toml"};
    line.insert(line.end(), words.begin(), words.end());
    expect_failure(run(line), 2, {words.front() + ": "});
  }
}

TEST_F(Retier, WaitsForWhoReplacesThePackThatItReads) {
  const auto lock = must(FileSystem::posix().lock_directory(path("model.panda")));
  for (const std::vector<std::string>& where :
       std::vector<std::vector<std::string>>{{}, {"-o", "other"}}) {
    std::vector<std::string> words = {"repack", "model.panda", "--plan", "disk.toml"};
    words.insert(words.end(), where.begin(), where.end());
    expect_failure(run(words), 11, {"model.panda is in use by another process"});
  }
  EXPECT_FALSE(std::filesystem::exists(path("other")));
}

TEST_F(Retier, TakesThePacksOwnNameAsOutput) {
  const RunResult result =
      run({"repack", "model.panda", "--plan", "disk.toml", "-o", "./model.panda", "--force"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
}

TEST_F(Retier, DryRunTouchesNothing) {
  const std::string before = read_text(path("model.panda/manifest.json"));
  const RunResult result = run({"repack", "model.panda", "--plan", "disk.toml", "-n"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("would write "));
  EXPECT_EQ(read_text(path("model.panda/manifest.json")), before);
}

TEST_F(Retier, RefusesWhatOnlyPackingAnewCanDo) {
  expect_failure(run({"repack", "model.panda", "--plan", "disk.toml", "--align", "64KiB"}), 2,
                 {"--align"});
  expect_failure(run({"repack", "model.panda"}), 4, {"is a pack already"});
  SafetensorsBuilder other;
  other.add_random("layers.0.up.weight", format::Dtype::kBf16, {64, 64});
  other.add_random("layers.1.up.weight", format::Dtype::kBf16, {64, 64});
  other.write(path("other.safetensors"));
  ASSERT_EQ(run({"plan", "other.safetensors", "-o", "other.toml"}).exit_code, 0);
  expect_failure(run({"repack", "model.panda", "--plan", "other.toml"}), 10, {"other.toml"});
}

}  // namespace
}  // namespace trash_panda::testing
