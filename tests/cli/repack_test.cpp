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
  expect_failure(run({"repack", "model.safetensors", "--force", "-o", "link"}), 7, {"link"});
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

TEST_F(Repack, DryRunFailsWhereARealOneWould) {
  expect_failure(run({"repack", "model.safetensors", "-n", "--reserve", "900000TB"}), 7, {"space"});
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
    expect_failure(run({"verify", "model.panda"}), 4, {extension, "repack it again"});
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

/// A repack that was interrupted after some of its blocks.
class RepackInterrupted : public Repack {
 protected:
  static constexpr int kBlocks = 40;

  RepackInterrupted() {
    SafetensorsBuilder builder;
    for (int i = 0; i < kBlocks; ++i) {
      builder.add_random(fmt::format("layers.{}.w", i), format::Dtype::kBf16, {256, 1024});
    }
    builder.write(path("deep.safetensors"));
  }

  /// Runs at about 10 blocks a second until there is a line in the journal, then sends a signal.
  RunResult interrupt(int signal, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"repack", "deep.safetensors", "--limit-rate", "5MB"};
    words.insert(words.end(), more.begin(), more.end());
    const std::uint64_t before_bytes = shard_bytes(path("deep.panda.partial"));
    RunningProgram program(words, {.folder = folder_.path(), .environment = {}, .program = {}});
    wait_for_a_block(path("deep.panda.partial"), before_bytes);
    const auto start = std::chrono::steady_clock::now();
    program.send(signal);
    RunResult result = program.wait(std::chrono::seconds(20));
    seconds_to_end_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start);
    return result;
  }

  [[nodiscard]] std::filesystem::path partial(std::string_view name) const {
    return path("deep.panda.partial") / name;
  }
  /// Waits until more than one block has been written behind what was there.
  static void wait_for_a_block(const std::filesystem::path& folder, std::uint64_t before_bytes) {
    for (int i = 0; i < 5000 && shard_bytes(folder) < before_bytes + 1'200'000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  static std::uint64_t shard_bytes(const std::filesystem::path& folder) {
    std::uint64_t bytes = 0;
    std::error_code error;
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      std::error_code gone;
      const std::uint64_t size_bytes = entry->file_size(gone);
      bytes += !gone && entry->path().extension() == ".safetensors" ? size_bytes : 0;
    }
    return bytes;
  }
  void expect_as_undisturbed() {
    ASSERT_EQ(run({"repack", "deep.safetensors", "-o", "undisturbed"}).exit_code, 0);
    for (const auto& entry : std::filesystem::directory_iterator(path("undisturbed"))) {
      EXPECT_TRUE(read_text(entry.path()) ==
                  read_text(path("deep.panda") / entry.path().filename()))
          << entry.path();
    }
  }

  std::chrono::duration<double> seconds_to_end_{};
};

TEST_F(RepackInterrupted, KeepsWhatIsFinishedAndSaysHowToTakeOn) {
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    const RunResult result = interrupt(signal);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_LT(seconds_to_end_.count(), 10) << "2 s are promised, on a machine that is not busy";
    const std::string command = "trash-panda repack deep.safetensors --limit-rate 5MB --resume";
    EXPECT_THAT(result.err, HasSubstr("take on with: " + command));
    EXPECT_TRUE(std::filesystem::exists(partial(".trash-panda-partial")));
    EXPECT_FALSE(std::filesystem::exists(path("deep.panda")));
  }
  const RunResult resumed = run({"repack", "deep.safetensors", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("taking on with deep.panda.partial"));
  EXPECT_THAT(resumed.err, HasSubstr("the interrupted run's plan is used"));
  EXPECT_FALSE(std::filesystem::exists(path("deep.panda.partial")));
  expect_as_undisturbed();
}

TEST_F(RepackInterrupted, ByAKillIsTakenOnWith) {
  EXPECT_EQ(interrupt(SIGKILL).exit_code, 137);
  EXPECT_FALSE(std::filesystem::exists(path("deep.panda")));
  const RunResult resumed = run({"repack", "deep.safetensors"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_as_undisturbed();
}

TEST_F(RepackInterrupted, StartsAnewForOtherOptionsUnlessTold) {
  EXPECT_EQ(interrupt(SIGINT).exit_code, 130);
  expect_failure(run({"repack", "deep.safetensors", "--align", "64KiB", "--resume", "-q"}), 10,
                 {"deep.panda.partial", "--no-resume"});
  expect_failure(run({"repack", "deep.safetensors", "--resume", "--no-resume"}), 2,
                 {"--resume", "--no-resume"});
  const RunResult anew = run({"repack", "deep.safetensors", "--align", "64KiB"});
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.err, HasSubstr("removing deep.panda.partial"));
  EXPECT_EQ(run({"verify", "deep.panda"}).exit_code, 0);
}

TEST_F(RepackInterrupted, OfAForcedRunIsTakenOnWith) {
  ASSERT_EQ(run({"repack", "model.safetensors", "-o", "deep.panda"}).exit_code, 0);
  RunningProgram program({"repack", "deep.safetensors", "--limit-rate", "5MB", "--force"},
                         {.folder = folder_.path(), .environment = {}, .program = {}});
  wait_for_a_block(path(".deep.panda.new.partial"), 0);
  expect_failure(run({"repack", "deep.safetensors", "--force"}), 11, {"deep.panda"});
  program.send(SIGINT);
  EXPECT_THAT(program.wait().err, HasSubstr("--limit-rate 5MB --force --resume"));
  EXPECT_EQ(run({"verify", "deep.panda"}).exit_code, 0);
  const RunResult resumed = run({"repack", "deep.safetensors", "--force", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("taking on with "));
  expect_as_undisturbed();
}

/// A pack, and a plan with its blocks in other tiers.
class Retier : public Repack {
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

TEST_F(Repack, DryRunTellsSpace) {
  const RunResult dry = run({"repack", "model.safetensors", "-n"});
  EXPECT_THAT(dry.out, HasSubstr(" are free on its drive"));
  const auto document =
      nlohmann::json::parse(run({"repack", "model.safetensors", "-n", "--json"}).out);
  EXPECT_GT(document["free_bytes"].get<std::uint64_t>(), 0U);
  EXPECT_EQ(document["read_s"], nullptr);  // Nothing was measured in this home.
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
