// Repacking that is ended half-way, and taken on with.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::HasSubstr;

/// A repack that was interrupted after some of its blocks.
class RepackInterrupted : public CliTest {
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

TEST_F(RepackInterrupted, ByALimitOnFilesSaysHowToTakeOn) {
  // In blocks of 512 bytes or 1 KiB, by the shell: less than the 20 MB of the shard in any case.
  const RunResult result = run_shell("ulimit -f 10000; \"$TP\" repack deep.safetensors",
                                     {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(result.err, HasSubstr("take on with: trash-panda repack deep.safetensors --resume"));
  const RunResult resumed = run({"repack", "deep.safetensors", "--resume"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("taking on with deep.panda.partial"));
  const RunResult unpacked =
      run_shell("ulimit -f 10000; \"$TP\" unpack deep.panda -o back",
                {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(unpacked.exit_code, 7) << unpacked.err;
  EXPECT_FALSE(std::filesystem::exists(path("back.partial")));
  expect_as_undisturbed();
}

TEST_F(RepackInterrupted, SaysACommandThatRunsWhateverTheNameAndTheEnvironment) {
  std::filesystem::rename(path("deep.safetensors"), path("-deep.safetensors"));
  RunningProgram program(
      {"repack", "--limit-rate", "5MB", "-o", "deep.panda", "--", "-deep.safetensors"},
      {.folder = folder_.path(), .environment = {{"TRASH_PANDA_ALIGN", "64KiB"}}, .program = {}});
  wait_for_a_block(path("deep.panda.partial"), 0);
  program.send(SIGINT);
  const std::string err = program.wait().err;
  const std::string command =
      "repack -o deep.panda --align 64KiB --limit-rate 5MB --resume -- -deep.safetensors";
  ASSERT_THAT(err, HasSubstr("take on with: trash-panda " + command));
  const RunResult resumed =
      run_shell("\"$TP\" " + command, {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("taking on with deep.panda.partial"));
}

TEST_F(RepackInterrupted, ByAKillIsTakenOnWith) {
  EXPECT_EQ(interrupt(SIGKILL).exit_code, 137);
  EXPECT_FALSE(std::filesystem::exists(path("deep.panda")));
  const RunResult resumed = run({"repack", "deep.safetensors"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_as_undisturbed();
}

TEST_F(RepackInterrupted, TakesOverWhatWeightsAreStoredAs) {
  SafetensorsBuilder builder;
  for (int i = 0; i < kBlocks; ++i) {
    // Every third is a BF16 in disguise; what a weight becomes depends on its values.
    std::vector<float> values(256 * 512);
    for (std::size_t k = 0; k < values.size(); ++k) {
      values[k] = static_cast<float>(k % 200) / (i % 3 == 0 ? 64.0F : 63.0F);
    }
    builder.add(fmt::format("layers.{}.weight", i), format::Dtype::kF32, {256, 512},
                bytes_of(values));
  }
  builder.write(path("deep.safetensors"));
  for (const char* dtype : {"keep", "fp8"}) {
    EXPECT_EQ(interrupt(SIGINT, {"--dtype", dtype}).exit_code, 130);
    const RunResult resumed = run({"repack", "deep.safetensors", "--dtype", dtype, "--resume"});
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(run({"repack", "deep.safetensors", "--dtype", dtype, "-o", "whole"}).exit_code, 0);
    EXPECT_EQ(read_text(path("deep.panda/manifest.json")), read_text(path("whole/manifest.json")));
    std::filesystem::remove_all(path("deep.panda"));
    std::filesystem::remove_all(path("whole"));
  }
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

}  // namespace
}  // namespace trash_panda::testing
