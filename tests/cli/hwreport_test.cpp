#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "trash_panda/base/units.h"
#include "trash_panda/plan/hardware_json.h"

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class HwreportCommand : public CliTest {
 protected:
  HwreportCommand() {
    std::filesystem::create_directory(path("data"));
    std::filesystem::create_directory(path("cache"));
  }

  [[nodiscard]] RunResult report(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "hwreport");
    return run(arguments, environment());
  }
  [[nodiscard]] std::map<std::string, std::string> environment() const {
    return {{"XDG_CACHE_HOME", path("cache").native()},
            {"HOME", folder_.path().native()},
            {"USER", "zaphodb"},
            {"HOSTNAME", "heartofgold"}};
  }
};

TEST_F(HwreportCommand, TellsWhatTheSystemSays) {
  const RunResult result = report({"--no-bench", "--path", "data"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(StartsWith("system "), HasSubstr("\ncpu "), HasSubstr("\nram "),
                                HasSubstr("\ngpu"), HasSubstr("\ndisk     data")));
  EXPECT_EQ(result.err, "");
}

TEST_F(HwreportCommand, MeasuresWritesAndKeeps) {
  const RunResult result = report({"--path", "data", "-o", "hw.json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(names(), ::testing::ElementsAre("cache", "data", "hw.json", "model.safetensors"));
  EXPECT_TRUE(std::filesystem::is_empty(path("data"))) << "the test file had no name";
  const auto hardware = plan::parse_hardware(read_text(path("hw.json")), "hw.json");
  ASSERT_TRUE(hardware) << hardware.error().to_string();
  EXPECT_GT(hardware->ram_copy_bytes_per_s, 0U);
  ASSERT_EQ(hardware->disks.size(), 1U);
  const plan::DiskInfo& disk = hardware->disks.front();
  EXPECT_TRUE(disk.read_bytes_per_s || disk.note.find("not measured") != std::string::npos);

  const RunResult kept = report({"--no-bench", "--json", "--path", "data"});
  const auto again = plan::parse_hardware(kept.out, "stdout");
  ASSERT_TRUE(again) << again.error().to_string();
  EXPECT_EQ(again->ram_copy_bytes_per_s, hardware->ram_copy_bytes_per_s);
  EXPECT_EQ(again->disks.front().read_bytes_per_s, disk.read_bytes_per_s);

  const RunResult compared = report({"--no-bench", "--path", "data", "--compare", "hw.json"});
  EXPECT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_THAT(compared.out, AllOf(HasSubstr("RAM copy"), HasSubstr("+0 %")));
}

TEST_F(HwreportCommand, LeaksNothingThatWasPlanted) {
  const std::string secret =
      "zaphodb-heartofgold-S6B0NL0T912345K-de:ad:be:ef:00:01-"
      "01020304-0506-0708-090a-0b0c0d0e0f10-hf_AbCdEfGhIjKlMnOpQrStUvWxYz";
  std::filesystem::create_directory(path(secret));
  std::array<char, 256> host = {};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  for (const std::vector<std::string>& format :
       {std::vector<std::string>{}, {"--json"}, {"--bug"}, {"-o", "report.json"}}) {
    std::vector<std::string> arguments = {"--no-bench", "--path", path(secret).native()};
    arguments.insert(arguments.end(), format.begin(), format.end());
    const RunResult result = report(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string file = std::filesystem::exists(path("report.json"))
                                 ? read_text(path("report.json"))
                                 : std::string();
    for (const std::string& text : {result.out, result.err, file}) {
      for (const char* planted : {"zaphod", "heartofgold", "S6B0NL0T", "de:ad", "01020304",
                                  "0b0c0d0e", "hf_AbC", "UvWxYz"}) {
        EXPECT_THAT(text, Not(HasSubstr(planted)));
      }
      EXPECT_THAT(text, Not(HasSubstr(folder_.path().native()))) << "the home folder is ~";
      if (std::string_view(host.data()) != "localhost") {
        EXPECT_THAT(text, Not(HasSubstr(host.data())));
      }
    }
    EXPECT_THAT(result.out, HasSubstr("~/"));
  }
  const RunResult open = report({"--no-bench", "--no-redact", "--path", path(secret).native()});
  EXPECT_THAT(open.out, HasSubstr(secret)) << "and --no-redact shows it";
}

TEST_F(HwreportCommand, ABugReportIsOneBlockOfMarkdown) {
  const RunResult result = report({"--no-bench", "--bug", "--path", "data"});
  EXPECT_THAT(result.out, AllOf(StartsWith("```text\ntrash-panda " TP_VERSION " ("),
                                HasSubstr("\n```\n"), HasSubstr("ram ")));
}

TEST_F(HwreportCommand, InterruptedItLeavesNothing) {
  RunningProgram program({"hwreport", "--full", "--path", "data"},
                         {.folder = folder_.path(), .environment = environment(), .program = {}});
  std::this_thread::sleep_for(std::chrono::seconds(1));
  program.send(SIGINT);
  const RunResult result = program.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(std::filesystem::is_empty(path("data")));
  EXPECT_FALSE(std::filesystem::exists(path("cache/trash-panda")));
}

TEST_F(HwreportCommand, AnUnreadableCacheIsSaidInOneLine) {
  const nlohmann::json document =
      nlohmann::json::parse(report({"--no-bench", "--no-redact", "--json"}).out);
  std::filesystem::create_directory(path("cache/trash-panda"));
  write_text(path(fmt::format("cache/trash-panda/hardware-{}.json",
                              document["fingerprint"].get<std::string>())),
             "{");
  const RunResult result = report({"--no-bench", "--path", "data"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(line_count(result.err), 1U) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no earlier measurement"));
}

TEST_F(HwreportCommand, WithoutPlaceForACacheItWorks) {
  const RunResult result = run({"hwreport", "--no-bench", "--path", "data"},
                               {{"HOME", "/nonexistent"}, {"XDG_CACHE_HOME", "relative"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(std::filesystem::exists("/nonexistent"));
}

TEST_F(HwreportCommand, AGpuThatIsNotThereIsToldAndNoFailure) {
  const RunResult result = report({"--no-bench", "--path", "data", "--gpu", "99", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_THAT(document["gpus"], IsEmpty());
  EXPECT_NE(document["gpu_note"], "");
}

TEST_F(HwreportCommand, RefusesWhatContradicts) {
  expect_failure(report({"--quick", "--full"}), 2, {"--quick", "--full"});
  expect_failure(report({"--no-bench", "--full"}), 2, {"--no-bench"});
  expect_failure(report({"--redact", "--no-redact"}), 2, {"--no-redact"});
  expect_failure(report({"--compare", "hw.json", "--bug"}), 2, {"--compare"});
  expect_failure(report({"-o", ""}), 2, {"-o"});
  expect_failure(report({"--path", "absent"}), 3, {"--path", "absent"});
  expect_failure(report({"--compare", "absent.json"}), 3, {"absent.json"});
  write_text(path("other.json"), "{}");
  expect_failure(report({"--compare", "other.json"}), 4, {"other.json"});
  expect_failure(report({"--no-bench", "-o", "other.json"}), 7, {"other.json", "-f"});
}

}  // namespace
}  // namespace trash_panda::testing
