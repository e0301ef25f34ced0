#include <map>
#include <string>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A plan with all blocks on a disk of 400 MB/s, in `plan.toml`.
class SimulateCommand : public CliTest {
 protected:
  SimulateCommand() {
    const RunResult made = run({"plan", "model.safetensors", "--hw",
                                TP_SOURCE_DIR "/schemas/examples/hardware/rtx3060-16gb-sata.json",
                                "--max-ram", "30000", "--max-vram", "40000", "--assign", "disk=*",
                                "--compute-ms", "0.01", "-o", "plan.toml"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }

  [[nodiscard]] nlohmann::json simulate(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"simulate", "--json", "plan.toml"});
    const RunResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
};

TEST_F(SimulateCommand, TellsStepBoundAndStalls) {
  const RunResult result = run({"simulate", "plan.toml"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("limited by"), HasSubstr("disk"),
                    HasSubstr("\nblock     tier    waits  for\n"), HasSubstr(" µs  disk\n")));
  const nlohmann::json document = simulate({});
  EXPECT_EQ(document["schema"], "trash-panda/simulate/1");
  const nlohmann::json& only = document["runs"].at(0);
  // Four blocks of 8320 bytes at 400 MB/s.
  EXPECT_NEAR(only["bound_s"].get<double>(), 4 * kBlockBytes / 400e6, 1e-12);
  EXPECT_EQ(only["limiting"], "disk");
  EXPECT_EQ(only["blocks"].size(), kBlockCount);
  EXPECT_EQ(only["blocks"][0]["stalled_by"], "disk");
}

TEST_F(SimulateCommand, SweepsAllCombinations) {
  const nlohmann::json document =
      simulate({"--set", "disk_bytes_per_s=400MB,800MB", "--set", "compute_ms=0.01,1,10"});
  ASSERT_EQ(document["runs"].size(), 6U);
  EXPECT_EQ(document["runs"][1]["set"]["disk_bytes_per_s"], "400MB");
  EXPECT_EQ(document["runs"][1]["set"]["compute_ms"], "1");
  EXPECT_EQ(document["runs"][5]["limiting"], "compute");
  EXPECT_NEAR(document["runs"][5]["bound_s"].get<double>(), 0.01, 1e-9);
  EXPECT_LT(document["runs"][3]["pass_s"], document["runs"][0]["pass_s"]);
}

TEST_F(SimulateCommand, TakesTheRatesOfAnotherMachine) {
  const nlohmann::json faster =
      simulate({"--hw", TP_SOURCE_DIR "/schemas/examples/hardware/rtx4090-nvme4.json"});
  EXPECT_LT(faster["runs"][0]["pass_s"], simulate({})["runs"][0]["pass_s"]);
}

TEST_F(SimulateCommand, RefusesWhatItCannotSet) {
  expect_failure(run({"simulate", "plan.toml", "--set", "disk_byte_per_s=1"}), 2,
                 {"did you mean disk_bytes_per_s?"});
  for (const char* wrong :
       {"disk_bytes_per_s", "disk_bytes_per_s=", "disk_bytes_per_s=0", "disk_bytes_per_s=fast",
        "compute_ms=-1", "host_slot_count=0", "host_slot_count=99", "compute_ms=1,"}) {
    expect_failure(run({"simulate", "plan.toml", "--set", wrong}), 2, {"--set"});
  }
  expect_failure(run({"simulate", "model.safetensors"}), 4, {"model.safetensors"});
  expect_failure(run({"simulate", "missing.toml"}), 3, {"missing.toml"});
}

TEST_F(SimulateCommand, SaysWhichRateIsMissing) {
  const RunResult made = run({"plan", "model.safetensors", "--probe=never", "--max-vram=0",
                              "--assign", "disk=*", "-o", "unmeasured.toml"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  expect_failure(run({"simulate", "unmeasured.toml"}), 2,
                 {"was made without disk_bytes_per_s", "--set disk_bytes_per_s="});
}

TEST_F(SimulateCommand, WritesATraceForPerfetto) {
  const RunResult result = run({"simulate", "plan.toml", "--trace", "pass.json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("limited by"));
  const nlohmann::json only = simulate({})["runs"].at(0);
  const nlohmann::json trace = nlohmann::json::parse(read_text(path("pass.json")));
  std::map<std::string, std::vector<nlohmann::json>> lanes;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      lanes[event["cat"]].push_back(event);
    }
  }
  // Every block comes from the disk and is copied; nothing is decoded.
  EXPECT_EQ(lanes.count("decode"), 0U);
  double stall_us = 0;
  for (const char* lane : {"disk", "link", "compute"}) {
    EXPECT_EQ(lanes[lane].size(), kBlockCount) << lane;
  }
  for (const nlohmann::json& stall : lanes["stalls"]) {
    EXPECT_EQ(stall["name"], "waits for disk");
    stall_us += stall["dur"].get<double>();
  }
  EXPECT_NEAR(stall_us, only["stall_s"].get<double>() * 1e6, 0.01);
  for (const auto& [lane, events] : lanes) {
    double end_us = 0;
    for (const nlohmann::json& event : events) {
      EXPECT_GE(event["ts"].get<double>(), end_us - 1e-9) << lane << " does one thing at a time";
      end_us = event["ts"].get<double>() + event["dur"].get<double>();
      EXPECT_EQ(event["tid"], events.front()["tid"]);
    }
  }
  const double first_us = lanes["disk"][0]["ts"];
  EXPECT_EQ(first_us, 0) << "reads run ahead: the first one is the start";
}

TEST_F(SimulateCommand, KeepsFilesThatAreNoTraces) {
  ASSERT_EQ(run({"simulate", "plan.toml", "--trace=pass.json"}).exit_code, 0);
  expect_failure(run({"simulate", "plan.toml", "--trace=pass.json"}), 7, {"already exists", "-f"});
  EXPECT_EQ(run({"simulate", "plan.toml", "--trace=pass.json", "-f"}).exit_code, 0);
  const std::string plan = read_text(path("plan.toml"));
  expect_failure(run({"simulate", "plan.toml", "--trace=plan.toml", "-f"}), 7, {"no trace"});
  EXPECT_EQ(read_text(path("plan.toml")), plan);
  expect_failure(run({"simulate", "plan.toml", "--trace", ""}), 2, {"--trace"});
  expect_failure(run({"simulate", "plan.toml", "--trace=t.json", "--set", "compute_ms=1,2"}), 2,
                 {"--trace shows one pass"});
  const RunResult both = run({"simulate", "plan.toml", "--trace=-", "--json"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_EQ(both.out, "");
}

TEST_F(SimulateCommand, SpeaksThroughPipes) {
  const RunResult piped = run_shell("\"$TP\" simulate - --trace - < plan.toml",
                                    {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  ASSERT_EQ(run({"simulate", "plan.toml", "--trace=pass.json"}).exit_code, 0);
  EXPECT_EQ(piped.out, read_text(path("pass.json")));
}

}  // namespace
}  // namespace trash_panda::testing
