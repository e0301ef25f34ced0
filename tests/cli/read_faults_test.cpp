// Drives that fail or are slow while a pack is read.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The program with tests/cli/read_faults loaded.
class ReadFaults : public CliTest {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers want to be loaded first";
#endif
  }

  [[nodiscard]] RunOptions with(const std::string& variable, const std::string& text) const {
    return {.folder = folder_.path(),
            .environment = {{"LD_PRELOAD", TP_READ_FAULTS}, {variable, text}},
            .program = {}};
  }
};

TEST_F(ReadFaults, KeepAPackThatCantBeReadBack) {
  const RunResult result = run_program({"repack", "model.safetensors", "--verify"},
                                       with("TP_FAIL_READS_OF", "/model.panda/base-"));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("model.panda can't be read back: base-00001.safetensors"));
  EXPECT_THAT(result.err, HasSubstr("model.panda is complete, but not all of it was read back; "
                                    "look at it again with: trash-panda verify model.panda"));
  EXPECT_EQ(run({"verify", "model.panda"}).exit_code, 0);
}

TEST_F(ReadFaults, KeepBothPacksWhereOneIsToReplaceTheOther) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  const std::string before = read_text(path("model.panda/manifest.json"));
  const RunResult result =
      run_program({"repack", "model.safetensors", "--verify", "--force", "--align", "64KiB"},
                  with("TP_FAIL_READS_OF", "/.model.panda.new/base-"));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("verify ./.model.panda.new; model.panda is still the old one"));
  EXPECT_EQ(read_text(path("model.panda/manifest.json")), before);
  EXPECT_EQ(run({"verify", ".model.panda.new"}).exit_code, 0);
  const RunResult anew = run({"repack", "model.safetensors", "--force"});
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(names(), ElementsAre("model.panda", "model.safetensors"));
}

TEST_F(ReadFaults, AreNoDamageForVerifyEither) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  const RunResult result =
      run_program({"verify", "model.panda"}, with("TP_FAIL_READS_OF", "/model.panda/base-"));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("can't be read"));
  EXPECT_THAT(result.err, ::testing::Not(HasSubstr("damaged")));
  const RunResult unpacked = run_program({"unpack", "model.panda", "-o", "back"},
                                         with("TP_FAIL_READS_OF", "/model.panda/base-"));
  EXPECT_EQ(unpacked.exit_code, 1) << unpacked.err;
  EXPECT_THAT(unpacked.err, HasSubstr("can't be read"));
  EXPECT_FALSE(std::filesystem::exists(path("back")));
}

TEST_F(ReadFaults, SlowAnUnpackingThatIsInterruptedAndSaysHowToGoOn) {
  ASSERT_EQ(run({"repack", "model.safetensors", "--compress", "none"}).exit_code, 0);
  std::filesystem::create_directory(path("-packs"));
  std::filesystem::rename(path("model.panda"), path("-packs/model.panda"));
  const std::vector<std::string> words = {
      "unpack", "-o", "back", "--max-shard-size", "10kB", "--", "-packs/model.panda"};
  RunningProgram program(words, with("TP_SLOW_READS_OF", "/model.panda/"));
  // A file for the embedding and for each of the four blocks, each read by itself.
  const std::filesystem::path first = path("back.partial/model-00001-of-00005.safetensors");
  for (int i = 0; i < 5000 && !std::filesystem::exists(first); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  program.send(SIGINT);
  const RunResult result = program.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const std::string command = "unpack -o back --max-shard-size 10kB -- -packs/model.panda";
  EXPECT_THAT(result.err, HasSubstr("nothing is left of back.partial; begin again with: "
                                    "trash-panda " +
                                    command));
  EXPECT_FALSE(std::filesystem::exists(path("back.partial")));
  const RunResult again =
      run_shell("\"$TP\" " + command, {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(again.exit_code, 0) << again.err;
}

TEST_F(ReadFaults, SlowABenchThatIsInterruptedWithinABlock) {
  SafetensorsBuilder builder;
  for (int i = 0; i < 4; ++i) {
    builder.add_random(fmt::format("layers.{}.up.weight", i), format::Dtype::kBf16, {4096, 4096});
  }
  builder.write(path("deep.safetensors"));
  ASSERT_EQ(
      run({"plan", "deep.safetensors", "--probe", "never", "--assign", "disk=*", "-o", "plan.toml"})
          .exit_code,
      0);
  // Reads of 64 KiB, four at a time: a block takes 25 s, and is all in flight at once.
  std::string plan = read_text(path("plan.toml"));
  const std::size_t budget = plan.find("[budget]\n");
  ASSERT_NE(budget, std::string::npos);
  plan.insert(budget, "[rates]\ndisk_request_bytes = 65536\n\n");
  write_text(path("plan.toml"), plan);
  const RunResult packed = run({"repack", "deep.safetensors", "--plan", "plan.toml", "--compress",
                                "none", "--reserve", "0"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  RunOptions slow = with("TP_SLOW_READS_OF", "/deep.panda/disk-");
  slow.environment["TRASH_PANDA_IO"] = "pread";
  RunningProgram program({"bench", "deep.panda", "--what", "stream"}, slow);
  for (int i = 0; i < 500 && program.err_so_far().find("4 read every pass") == std::string::npos;
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_THAT(program.err_so_far(), HasSubstr("4 read every pass"));
  program.send(SIGINT);
  const RunResult result = program.wait(std::chrono::seconds(15));
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace trash_panda::testing
