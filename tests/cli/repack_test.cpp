#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "cli_test.h"
#include "format/support/coded_sample.h"

namespace trash_panda::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Repack : public CliTest {
 protected:
  /// Flips one bit in the middle of a file.
  static void damage(const std::filesystem::path& path) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(path) / 2);
    file.seekg(middle);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(middle);
    file.put(byte);
  }

  /// A checkpoint that takes a while to pack: sparse, so that it is made at once.
  void write_large_model(std::uint64_t size_bytes) const {
    const std::string header = fmt::format(
        R"({{"layers.0.w":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}}}})", size_bytes);
    write_text(path("large.safetensors"),
               bytes_of(std::vector<std::uint64_t>{header.size()}) + header);
    std::filesystem::resize_file(path("large.safetensors"), 8 + header.size() + size_bytes);
  }
};

TEST_F(Repack, WritesAPackBesideTheModel) {
  const RunResult result = run({"repack", "model.safetensors"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(names(), ElementsAre("model.panda", "model.safetensors"));
  EXPECT_THAT(result.out, StartsWith("model.panda  "));
  EXPECT_THAT(result.err, HasSubstr("planned for this machine"));
  EXPECT_THAT(result.err, HasSubstr("trash_panda.load("));
  const RunResult verified = run({"verify", "model.panda"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_THAT(verified.out, StartsWith("model.panda: ok, "));
}

TEST_F(Repack, TellsWhatItWroteAsJson) {
  const RunResult result = run({"repack", "model.safetensors", "-o", "out", "--verify", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["schema"], "trash-panda/repack/1");
  EXPECT_EQ(document["pack"], "out");
  EXPECT_EQ(document["dry_run"], false);
  EXPECT_EQ(document["verified"], true);
  EXPECT_EQ(document["plan"], nullptr);
  std::uint64_t shard_bytes = 0;
  for (const auto& shard : document["shards"]) {
    EXPECT_EQ(shard["size_bytes"],
              std::filesystem::file_size(path("out") / shard["name"].get<std::string>()));
    shard_bytes += shard["size_bytes"].get<std::uint64_t>();
  }
  EXPECT_EQ(document["total_bytes"], shard_bytes);
}

TEST_F(Repack, LaysOutForAPlan) {
  ASSERT_EQ(
      run({"plan", "model.safetensors", "--max-vram=0", "--assign", "disk=0-1", "-o", "plan.toml"})
          .exit_code,
      0);
  const std::string plan = "# mine\n" + read_text(path("plan.toml"));
  write_text(path("plan.toml"), plan);
  const RunResult result = run({"repack", "model.safetensors", "--plan", "plan.toml", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["tiers"]["disk"]["extent_count"], 2);
  EXPECT_EQ(document["tiers"]["ram"]["extent_count"], 2);
  EXPECT_EQ(document["plan"], "plan.toml");
  EXPECT_EQ(read_text(path("model.panda/plan.toml")), plan);
}

TEST_F(Repack, DryRunTellsTheSizeAndWritesNothing) {
  const RunResult dry = run({"repack", "model.safetensors", "-n", "--json"});
  ASSERT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_THAT(names(), ElementsAre("model.safetensors"));
  const RunResult real = run({"repack", "model.safetensors", "--json"});
  EXPECT_EQ(nlohmann::json::parse(dry.out)["total_bytes"],
            nlohmann::json::parse(real.out)["total_bytes"]);
  EXPECT_THAT(run({"repack", "model.safetensors", "-n", "-o", "other"}).out,
              StartsWith("would write "));
}

TEST_F(Repack, AlignsExtents) {
  const RunResult result = run({"repack", "model.safetensors", "--align", "64KiB"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto manifest = nlohmann::json::parse(read_text(path("model.panda/manifest.json")));
  EXPECT_EQ(manifest["page_bytes"], 64 * 1024);
  EXPECT_NE(run({"repack", "model.safetensors", "-o", "odd", "--align", "5000"}).exit_code, 0);
}

TEST_F(Repack, KeepsAnExistingPackUnlessForced) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  const std::string before = read_text(path("model.panda/manifest.json"));
  expect_failure(run({"repack", "model.safetensors"}), 7,
                 {"model.panda already exists", "--force"});
  EXPECT_EQ(read_text(path("model.panda/manifest.json")), before);
  const RunResult forced = run({"repack", "model.safetensors", "--force", "--align", "64KiB"});
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_NE(read_text(path("model.panda/manifest.json")), before);
  EXPECT_THAT(names(), ElementsAre("model.panda", "model.safetensors"));
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
}

TEST_F(Repack, ForceReplacesNothingButPacks) {
  std::filesystem::create_directory(path("model.panda"));
  write_text(path("model.panda/letter.txt"), "dear");
  expect_failure(run({"repack", "model.safetensors", "--force"}), 7, {"model.panda", "no pack"});
  EXPECT_EQ(read_text(path("model.panda/letter.txt")), "dear");

  ASSERT_EQ(run({"repack", "model.safetensors", "-o", "pack"}).exit_code, 0);
  write_text(path("pack/letter.txt"), "dear");
  expect_failure(run({"repack", "model.safetensors", "--force", "-o", "pack"}), 7,
                 {"pack/letter.txt"});
  EXPECT_EQ(run({"verify", "pack"}).exit_code, 0);
}

TEST_F(Repack, ForceSparesACheckpointWithSomeManifest) {
  std::filesystem::create_directory(path("model"));
  std::filesystem::rename(path("model.safetensors"), path("model/model.safetensors"));
  write_text(path("model/manifest.json"), R"({"manifest_version": 3, "name": "extension"})");
  EXPECT_EQ(run({"plan", "model"}).exit_code, 0);
  expect_failure(run({"repack", "model", "--force", "-o", "model"}), 7, {"model", "no pack"});
  EXPECT_TRUE(std::filesystem::exists(path("model/model.safetensors")));
}

TEST_F(Repack, IsKnownAsAPackWhateverItsManifestSays) {
  ASSERT_EQ(run({"repack", "model.safetensors", "-o", "pack"}).exit_code, 0);
  const std::string manifest = read_text(path("pack/manifest.json"));
  auto reordered = nlohmann::json::parse(manifest);  // Its keys are sorted now.
  reordered["a"] = std::string(5000, ' ');
  for (const std::string& damaged :
       {std::string(), std::string("{}"), std::string("[1, 2"), std::string(5000, '\0'),
        manifest.substr(0, 10), manifest.substr(0, manifest.size() / 2), reordered.dump()}) {
    write_text(path("pack/manifest.json"), damaged);
    for (const char* command : {"inspect", "verify", "plan", "repack"}) {
      expect_failure(run({command, "pack"}), 4, {"pack"});
    }
    expect_failure(run({"inspect", "pack"}), 4, {"manifest.json"});
    expect_failure(run({"repack", "model.safetensors", "--force", "-o", "pack"}), 7, {"pack"});
  }
}

TEST_F(Repack, ForceSparesWhatLiesInAPack) {
  ASSERT_EQ(run({"repack", "model.safetensors", "-o", "pack"}).exit_code, 0);
  const auto expect_spared = [this](const std::string& extra) {
    expect_failure(run({"repack", "model.safetensors", "--force", "-o", "pack"}), 7,
                   {"pack/" + extra});
    EXPECT_TRUE(std::filesystem::exists(path("pack/" + extra)));
    std::filesystem::remove_all(path("pack/" + extra));
  };
  write_text(path("pack/my_lora.safetensors"), "dear");
  expect_spared("my_lora.safetensors");
  std::filesystem::create_directory(path("pack/dir.safetensors"));
  expect_spared("dir.safetensors");

  const auto manifest = nlohmann::json::parse(read_text(path("pack/manifest.json")));
  const std::string shard = manifest["shards"][0]["name"];
  std::filesystem::remove(path("pack/" + shard));
  std::filesystem::create_directory(path("pack/" + shard));
  expect_spared(shard);
  std::filesystem::create_hard_link(path("model.safetensors"), path("pack/" + shard));
  expect_spared(shard);
  // A pack that only lacks a shard is still one.
  EXPECT_EQ(run({"repack", "model.safetensors", "--force", "-o", "pack"}).exit_code, 0);
  EXPECT_EQ(run({"verify", "pack"}).exit_code, 0);
}

TEST_F(Repack, ForceFollowsNoLink) {
  ASSERT_EQ(run({"repack", "model.safetensors", "-o", "pack"}).exit_code, 0);
  std::filesystem::create_directory_symlink("pack", path("link"));
  expect_failure(run({"repack", "model.safetensors", "--force", "-o", "link"}), 7,
                 {"link is a link to a pack", "/pack"});
}

TEST_F(Repack, ReplacesAPackHoweverItIsNamed) {
  ASSERT_EQ(run({"repack", "model.safetensors", "-o", "pack"}).exit_code, 0);
  for (const std::string name : {"pack/", "pack/.", "pack/./", "./pack//.", "pack/../pack"}) {
    const RunResult result = run({"repack", "model.safetensors", "--force", "-o", name});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(run({"verify", "pack"}).exit_code, 0);
    EXPECT_THAT(names(), ElementsAre("model.safetensors", "pack"));
  }
}

TEST_F(Repack, ForceClearsWhatAnInterruptedRunLeft) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  std::filesystem::copy(path("model.panda"), path(".model.panda.new"));
  const RunResult forced = run({"repack", "model.safetensors", "--force"});
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_THAT(forced.err, HasSubstr(".model.panda.new"));
  EXPECT_THAT(names(), ElementsAre("model.panda", "model.safetensors"));

  std::filesystem::create_directory(path(".model.panda.new"));
  write_text(path(".model.panda.new/letter.txt"), "dear");
  expect_failure(run({"repack", "model.safetensors", "--force"}), 7, {".model.panda.new"});
  EXPECT_EQ(read_text(path(".model.panda.new/letter.txt")), "dear");
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
}

TEST_F(Repack, ForceIsForOneRunAtATime) {
  write_large_model(std::uint64_t{4} << 30);
  ASSERT_EQ(run({"repack", "model.safetensors", "-o", "pack"}).exit_code, 0);
  RunningProgram program({"repack", "large.safetensors", "--reserve=0", "--force", "-o", "pack"},
                         {.folder = folder_.path(), .environment = {}, .program = {}});
  for (int i = 0; i < 2000 && !std::filesystem::exists(path(".pack.new.partial")); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  expect_failure(run({"repack", "model.safetensors", "--force", "-o", "pack"}), 11, {"pack"});
  program.send(SIGKILL);
  program.wait(std::chrono::seconds(20));
  // What was killed is cleared by the next run.
  EXPECT_EQ(run({"repack", "model.safetensors", "--force", "-o", "pack"}).exit_code, 0);
  EXPECT_THAT(names(), ElementsAre("large.safetensors", "model.safetensors", "pack"));
}

TEST_F(Repack, DryRunTellsTheSizeAndWhatWouldFail) {
  // What does not fit here may be packed elsewhere: the size is what is asked.
  const RunResult large = run({"repack", "model.safetensors", "-n", "--reserve", "900000TB"});
  EXPECT_EQ(large.exit_code, 0);
  EXPECT_THAT(large.out, HasSubstr("would write model.panda"));
  EXPECT_THAT(large.err, HasSubstr("warning: not enough space on the drive"));
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  expect_failure(run({"repack", "model.safetensors", "-n"}), 7, {"model.panda already exists"});
  EXPECT_EQ(run({"repack", "model.safetensors", "-n", "--force"}).exit_code, 0);
  EXPECT_THAT(names(), ElementsAre("model.panda", "model.safetensors"));
}

TEST_F(Repack, ClosedStreamsCostNoShard) {
  const RunResult result =
      run_shell(R"("$TP" repack model.safetensors --progress always --reserve 0 <&- >&- 2>&-)",
                {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(result.exit_code, 7);  // The result can't be told.
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
}

TEST_F(Repack, PastedLinesSurviveOddNames) {
  std::filesystem::rename(path("model.safetensors"), path("it's\na model.safetensors"));
  const RunResult plan = run({"plan", "it's\na model.safetensors", "-o", "my\nplan.toml"});
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const std::string line = plan.err.substr(plan.err.find("next: trash-panda ") + 18);
  write_text(path("paste.sh"), "\"$TP\" " + line);
  const RunResult pasted =
      run_shell("bash paste.sh", {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(pasted.exit_code, 0) << pasted.err;
  EXPECT_THAT(pasted.err, HasSubstr(R"(trash_panda.load('it\'s\x0aa model.panda', model))"));
}

TEST_F(Repack, AHandEditedPlanThatNoLongerFitsIsTold) {
  // Base, slots and one block leave no room for the other three.
  ASSERT_EQ(run({"plan", "model.safetensors", "--max-vram=0", "--max-ram=60000", "-o", "plan.toml"})
                .exit_code,
            0);
  std::string text = read_text(path("plan.toml"));
  const std::string disk = "tier = \"disk\"";
  ASSERT_NE(text.find(disk), std::string::npos) << text;
  for (std::size_t at = text.find(disk); at != std::string::npos; at = text.find(disk)) {
    text.replace(at, disk.size(), "tier = \"ram\"");
  }
  write_text(path("plan.toml"), text);
  const RunResult result = run({"repack", "model.safetensors", "--plan", "plan.toml"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: plan.toml: "));
  EXPECT_THAT(result.err, HasSubstr("60.0 kB"));
}

TEST_F(Repack, SizesInAPlanAreTheCheckpoints) {
  ASSERT_EQ(run({"plan", "model.safetensors", "-o", "plan.toml"}).exit_code, 0);
  std::string text = read_text(path("plan.toml"));
  const std::string key = "base_bytes = ";
  const std::size_t at = text.find(key);
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, key.size() + 1, key + "9");
  write_text(path("plan.toml"), text);
  expect_failure(run({"repack", "model.safetensors", "--plan", "plan.toml"}), 10, {"plan.toml"});
}

TEST_F(Repack, VerifyTellsAnIncompletePack) {
  for (const char* extension : {".toml", ".safetensors"}) {
    ASSERT_EQ(run({"repack", "model.safetensors", "--force"}).exit_code, 0);
    for (const auto& entry : std::filesystem::directory_iterator(path("model.panda"))) {
      if (entry.path().extension() == extension) {
        std::filesystem::remove(entry.path());
        break;
      }
    }
    const RunResult result = run({"verify", "model.panda"});
    EXPECT_EQ(result.exit_code, extension == std::string(".toml") ? 4 : 6) << result.err;
    EXPECT_THAT(result.err, HasSubstr(extension));
    EXPECT_THAT(result.err, HasSubstr("repack it"));
  }
}

TEST_F(Repack, RefusesAPlanOfAnotherCheckpoint) {
  ASSERT_EQ(run({"plan", "model.safetensors", "-o", "plan.toml"}).exit_code, 0);
  SafetensorsBuilder other;
  for (int i = 0; i < 4; ++i) {
    other.add_random(fmt::format("layers.{}.up.weight", i), format::Dtype::kBf16, {64, 64});
  }
  other.write(path("other.safetensors"));
  expect_failure(run({"repack", "other.safetensors", "--plan", "plan.toml"}), 10, {"plan.toml"});
  EXPECT_THAT(names(), ElementsAre("model.safetensors", "other.safetensors", "plan.toml"));
}

TEST_F(Repack, RefusesABrokenOrMissingPlan) {
  write_text(path("plan.toml"), "[model]\nfingerprnt = 'x'\n");
  expect_failure(run({"repack", "model.safetensors", "--plan", "plan.toml"}), 4, {"plan.toml"});
  expect_failure(run({"repack", "model.safetensors", "--plan", "absent.toml"}), 3, {"absent.toml"});
}

TEST_F(Repack, SizeSettingsAreChecked) {
  expect_failure(run({"repack", "model.safetensors", "--reserve", "much"}), 2, {"--reserve"});
  expect_failure(run({"repack", "model.safetensors", "--reserve", "900PB"}), 2, {"--reserve"});
  expect_failure(run({"repack", "model.safetensors", "--reserve", "900000TB"}), 7, {"space"});
}

TEST_F(Repack, StopsOnASignalAndLeavesNothing) {
  write_large_model(std::uint64_t{4} << 30);
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    RunningProgram program({"repack", "large.safetensors", "--reserve", "0"},
                           {.folder = folder_.path(), .environment = {}, .program = {}});
    const auto partial = path("large.panda.partial");
    for (int i = 0; i < 2000 && !std::filesystem::exists(partial); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    program.send(signal);
    const RunResult result = program.wait(std::chrono::seconds(20));
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr("error: "));
    EXPECT_THAT(names(), ElementsAre("large.safetensors", "model.safetensors"));
  }
}

TEST_F(Repack, CodesExponentsWhenAsked) {
  SafetensorsBuilder builder;
  for (int i = 0; i < 3; ++i) {
    builder.add(fmt::format("layers.{}.w", i), format::Dtype::kBf16, {256, 512},
                gaussian_bf16(256 * 512, 1));
  }
  builder.write(path("gauss.safetensors"));
  const auto total_bytes = [&](const std::string& how) {
    const RunResult result =
        run({"repack", "gauss.safetensors", "-o", how, "--compress", how, "--verify", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["total_bytes"].get<double>();
  };
  EXPECT_LT(total_bytes("exponent"), 0.72 * total_bytes("none"));
  for (const char* how : {"exponent", "none"}) {
    EXPECT_EQ(run({"verify", how}).exit_code, 0);
    EXPECT_EQ(run({"verify", how, "--source", "gauss.safetensors"}).exit_code, 0);
    const std::string out = std::string(how) + "-out";
    EXPECT_EQ(run({"unpack", how, "-o", out, "--reserve", "0"}).exit_code, 0);
    EXPECT_EQ(run({"verify", how, "--source", out}).exit_code, 0);
  }
  expect_failure(run({"repack", "gauss.safetensors", "--compress", "much", "-o", "x"}), 2,
                 {"--compress"});
}

TEST_F(Repack, SaysWhenBlocksAreNotInTheFormsOfThePlan) {
  SafetensorsBuilder builder;
  for (int i = 0; i < 6; ++i) {
    builder.add(fmt::format("layers.{}.w", i), format::Dtype::kBf16, {256, 512},
                gaussian_bf16(256 * 512, 1));
  }
  builder.write(path("gauss.safetensors"));
  const auto plan = [&](const char* name, const char* compute_ms) {
    const RunResult made =
        run({"plan", "gauss.safetensors", "--hw",
             TP_SOURCE_DIR "/schemas/examples/hardware/laptop-no-gpu.json", "--max-ram", "1200000",
             "--assign", "disk=*", "--compute-ms", compute_ms, "-o", name});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return read_text(path(name));
  };
  // Where the drive is waited for, blocks are coded; where the computation is, they stay raw.
  ASSERT_THAT(plan("coded.toml", "0.01"), HasSubstr("form = \"exponent\""));
  ASSERT_THAT(plan("raw.toml", "1000"), Not(HasSubstr("form = \"exponent\"")));

  const auto warning_of = [&](const char* file, const char* how, const char* pack) {
    const RunResult result =
        run({"repack", "gauss.safetensors", "--plan", file, "--compress", how, "-o", pack});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  EXPECT_THAT(warning_of("coded.toml", "auto", "coded"), Not(HasSubstr("planned")));
  EXPECT_THAT(warning_of("raw.toml", "auto", "raw"), Not(HasSubstr("planned")));
  EXPECT_THAT(warning_of("coded.toml", "none", "none"),
              HasSubstr("6 blocks planned coded but packed raw"));
  EXPECT_THAT(warning_of("raw.toml", "exponent", "exponent"),
              HasSubstr("6 blocks planned raw but packed coded"));
  EXPECT_THAT(run({"repack", "raw", "--plan", "coded.toml"}).err,
              HasSubstr("6 blocks planned coded but packed raw"));
  EXPECT_THAT(run({"repack", "coded", "--plan", "raw.toml"}).err,
              HasSubstr("6 blocks planned raw but packed coded"));
}

TEST_F(Repack, VerifiesQuicklyAndAgainstTheSource) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  EXPECT_THAT(run({"verify", "model.panda", "--quick"}).out, HasSubstr("as far as --quick looks"));
  EXPECT_THAT(run({"verify", "model.panda", "--source", "model.safetensors"}).out,
              HasSubstr("as in model.safetensors"));
  expect_failure(run({"verify", "model.panda", "--quick", "--source", "model.safetensors"}), 2, {});
  damage(path("model.safetensors"));
  const RunResult differs = run({"verify", "model.panda", "--source", "model.safetensors"});
  EXPECT_EQ(differs.exit_code, 6);
  EXPECT_THAT(differs.out, HasSubstr("differs from the source"));
  EXPECT_EQ(
      nlohmann::json::parse(
          run({"verify", "model.panda", "--source", "model.safetensors", "--json"}).out)["ok"],
      false);
}

TEST_F(Repack, UnpacksToAStandardCheckpoint) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  const RunResult result = run({"unpack", "model.panda", "-o", "out", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(nlohmann::json::parse(result.out)["files"][0]["name"], "model.safetensors");
  EXPECT_EQ(run({"verify", "model.panda", "--source", "out"}).exit_code, 0);
  expect_failure(run({"unpack", "model.panda", "-o", "out"}), 7, {"out"});
  expect_failure(run({"unpack", "model.panda"}), 2, {"-o"});
  expect_failure(run({"unpack", ".", "-o", "x"}), 3, {});
  const RunResult sharded =
      run({"unpack", "model.panda", "-o", "small", "--max-shard-size", "20000", "--json"});
  EXPECT_GT(nlohmann::json::parse(sharded.out)["files"].size(), 1U);
  EXPECT_EQ(run({"verify", "model.panda", "--source", "small"}).exit_code, 0);
}

TEST_F(Repack, UnpackTellsAtOnceWhatCantBeWritten) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  std::filesystem::create_directory(path("folder"));
  for (const char* target :
       {".", "folder", "folder/", "folder/..", "model.panda", "model.safetensors"}) {
    expect_failure(run({"unpack", "model.panda", "-o", target}), 7, {"already exists", "-o"});
  }
  expect_failure(run({"unpack", "model.panda", "-o", "absent/out"}), 7, {"absent", "make it"});
  expect_failure(run({"unpack", "model.panda", "-o", "model.panda/out"}), 2, {"inside the pack"});
  expect_failure(run({"unpack", "model.panda", "-o", "out", "--reserve", "1000000TB"}), 7,
                 {"not enough space", "reserve"});
  EXPECT_EQ(run({"unpack", "model.panda", "-o", "folder/out/"}).exit_code, 0);
}

TEST_F(Repack, UnpacksNothingOfADamagedPack) {
  ASSERT_EQ(run({"repack", "model.safetensors", "--compress", "none"}).exit_code, 0);
  for (const auto& entry : std::filesystem::directory_iterator(path("model.panda"))) {
    if (entry.path().extension() == ".safetensors") {
      damage(entry.path());
    }
  }
  expect_failure(run({"unpack", "model.panda", "-o", "out"}), 6, {"damaged", "verify model.panda"});
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(Repack, DryRunTellsSpace) {
  const RunResult dry = run({"repack", "model.safetensors", "-n"});
  EXPECT_THAT(dry.out, HasSubstr(" are free on its drive"));
  const auto document =
      nlohmann::json::parse(run({"repack", "model.safetensors", "-n", "--json"}).out);
  EXPECT_GT(document["free_bytes"].get<std::uint64_t>(), 0U);
  EXPECT_EQ(document["read_s"], nullptr);  // Nothing was measured in this home.
}

TEST_F(Repack, DryRunTellsTheSizeWhereSpaceIsShort) {
  const RunResult dry = run({"repack", "model.safetensors", "-n", "--reserve", "1000000TB"});
  EXPECT_EQ(dry.exit_code, 0);
  EXPECT_THAT(dry.out, StartsWith("would write "));
  EXPECT_THAT(dry.err, HasSubstr("not enough space"));
  expect_failure(run({"repack", "model.safetensors", "--reserve", "1000000TB"}), 7,
                 {"not enough space"});
}

TEST_F(Repack, RefusesARateOfNothing) {
  expect_failure(run({"repack", "model.safetensors", "--limit-rate", "0"}), 2, {"--limit-rate"});
}

TEST_F(Repack, VerifyNamesTheDamagedExtent) {
  ASSERT_EQ(run({"repack", "model.safetensors", "--align", "64KiB"}).exit_code, 0);
  const auto manifest = nlohmann::json::parse(read_text(path("model.panda/manifest.json")));
  for (const auto& shard : manifest["shards"]) {
    const std::string name = shard["name"];
    damage(path("model.panda/" + name));
    const RunResult result = run({"verify", "model.panda"});
    EXPECT_EQ(result.exit_code, 6);
    EXPECT_THAT(result.out, HasSubstr(name));
    EXPECT_THAT(result.err, StartsWith("error: model.panda is damaged: "));
    EXPECT_THAT(result.err, HasSubstr(name));
    EXPECT_EQ(line_count(result.err), 1U);
    const RunResult json = run({"verify", "model.panda", "--json"});
    EXPECT_EQ(json.exit_code, 6);
    EXPECT_EQ(nlohmann::json::parse(json.out)["ok"], false);
    EXPECT_EQ(nlohmann::json::parse(json.err)["exit"], 6);
    damage(path("model.panda/" + name));  // Flips the bit back.
    EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
  }
}

TEST_F(Repack, VerifyRefusesWhatIsNoPack) {
  expect_failure(run({"verify", "absent"}), 3, {"absent"});
  expect_failure(run({"verify", "."}), 3, {});
  expect_failure(run({"verify", "model.safetensors"}), 3, {"model.safetensors"});
}

}  // namespace
}  // namespace trash_panda::testing
