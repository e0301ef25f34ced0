#include <fstream>
#include <string>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class PlanCommand : public CliTest {
 protected:
  [[nodiscard]] nlohmann::json plan(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"plan", "--json", "model.safetensors"});
    const RunResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return nlohmann::json::parse(result.out);
  }

  [[nodiscard]] static std::vector<std::string> tiers(const nlohmann::json& document) {
    std::vector<std::string> tiers;
    for (const auto& block : document["blocks"]) {
      tiers.push_back(block["tier"]);
    }
    return tiers;
  }
};

TEST_F(PlanCommand, TellsTiersBudgetsAndBlocks) {
  const nlohmann::json document = plan({"--max-vram", "0"});
  EXPECT_EQ(document["schema"], "trash-panda/plan/1");
  EXPECT_EQ(document["model"]["total_bytes"], kEmbeddingBytes + kBlockCount * kBlockBytes);
  EXPECT_EQ(document["model"]["tensor_count"], 9);
  EXPECT_THAT(tiers(document), ElementsAre("ram", "ram", "ram", "ram"));
  EXPECT_EQ(document["blocks"][3]["name"], "layers.3");
  EXPECT_EQ(document["blocks"][3]["stored_bytes"], kBlockBytes);
  EXPECT_EQ(document["tiers"]["ram"]["block_count"], kBlockCount);
  EXPECT_EQ(document["tiers"]["ram"]["stored_bytes"], kBlockCount * kBlockBytes);
  EXPECT_EQ(document["fits"], true);
  EXPECT_TRUE(document["warnings"].is_array());
  EXPECT_EQ(document["output"], nullptr);
}

TEST_F(PlanCommand, TiersAddUpTheirBlocks) {
  const nlohmann::json document =
      plan({"--hw", TP_SOURCE_DIR "/schemas/examples/hardware/rtx3060-16gb-sata.json",
            "--max-vram=60000", "--max-ram=40000"});
  std::size_t coded_count = 0;
  for (const auto& [name, tier] : document["tiers"].items()) {
    std::uint64_t stored_bytes = 0;
    std::uint64_t raw_bytes = 0;
    for (const auto& block : document["blocks"]) {
      if (block["tier"] == name) {
        stored_bytes += block["stored_bytes"].get<std::uint64_t>();
        raw_bytes += block["raw_bytes"].get<std::uint64_t>();
        coded_count += block["form"] == "raw" ? 0U : 1U;
      }
    }
    EXPECT_EQ(tier["stored_bytes"], stored_bytes) << name;
    EXPECT_EQ(tier["raw_bytes"], raw_bytes) << name;
  }
  EXPECT_GT(coded_count, 0U) << "else both numbers are the same";
}

TEST_F(PlanCommand, ReadsLikeTheManual) {
  const RunResult result = run({"plan", "model.safetensors", "--max-vram=0", "--assign=disk=1"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out,
              AllOf(StartsWith("model.safetensors  46.1 kB  "), HasSubstr("  4 blocks\nRAM "),
                    HasSubstr("\ntier  blocks   stored  budget\n"),
                    HasSubstr("\n layers     0 =.== 3    # gpu  = ram  . disk\n")));
  EXPECT_THAT(result.out, Not(HasSubstr("predicted")));
  EXPECT_THAT(result.err, HasSubstr("next: "));
}

TEST_F(PlanCommand, PredictsAStepOnADescribedMachine) {
  const std::vector<std::string> options = {
      "--hw",         TP_SOURCE_DIR "/schemas/examples/hardware/rtx3060-16gb-sata.json",
      "--max-ram",    "30000",
      "--max-vram",   "40000",
      "--compute-ms", "2.5"};
  std::vector<std::string> arguments = {"plan", "model.safetensors"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const RunResult text = run(arguments);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("  per step\n"), HasSubstr("\npredicted step "),
                              HasSubstr("   bound 2.5 ms (compute)")));
  const nlohmann::json document = plan(options);
  EXPECT_EQ(document["rates"]["disk_bytes_per_s"], 400'000'000);
  EXPECT_EQ(document["rates"]["compute_source"], "given");
  EXPECT_GE(document["predicted"]["pass_s"], document["predicted"]["bound_s"]);
  double compute_s = 0;
  for (const auto& block : document["blocks"]) {
    EXPECT_EQ(block["stored_bytes"], block["raw_bytes"]);
    EXPECT_EQ(block["form"], "raw");
    compute_s += block["compute_s"].get<double>();
  }
  EXPECT_NEAR(compute_s, 0.0025, 1e-9);
  // The same machine, model and options: the same bytes.
  arguments.insert(arguments.end(), {"-o", "-"});
  const RunResult first = run(arguments);
  EXPECT_THAT(first.out, HasSubstr("\n[predicted]\npass_s = "));
  EXPECT_EQ(run(arguments).out, first.out);
  expect_failure(run({"plan", "model.safetensors", "--hw", "model.safetensors"}), 4, {"not JSON"});
  expect_failure(run({"plan", "model.safetensors", "--compute-ms=-1"}), 2, {"--compute-ms"});
}

TEST_F(PlanCommand, PlacesGreedilyOnRequest) {
  const std::string machine = TP_SOURCE_DIR "/schemas/examples/hardware/rtx3060-16gb-sata.json";
  EXPECT_THAT(tiers(plan({"--hw", machine, "--placement=greedy"})),
              ElementsAre("gpu", "gpu", "gpu", "gpu"));
  expect_failure(run({"plan", "model.safetensors", "--placement=clever"}), 2, {"cost, greedy"});
}

TEST_F(PlanCommand, HonoursAssignments) {
  EXPECT_THAT(tiers(plan({"--max-vram=0", "--assign", "disk=0-1"})),
              ElementsAre("disk", "disk", "ram", "ram"));
  EXPECT_THAT(tiers(plan({"--max-vram=0", "--assign", "disk=layers.*", "--assign", "ram=-1"})),
              ElementsAre("disk", "disk", "disk", "ram"));
  expect_failure(run({"plan", "model.safetensors", "--assign", "disk"}), 2,
                 {"--assign", "'disk'", "TIER=SEL"});
  expect_failure(run({"plan", "model.safetensors", "--assign", "base=1"}), 2, {"'base=1'"});
  expect_failure(run({"plan", "model.safetensors", "--assign", "disk=99"}), 2, {"99"});
}

TEST_F(PlanCommand, HonoursTheRamBudget) {
  // Base, slots and one block do not leave room for the other three.
  const nlohmann::json document = plan({"--max-vram=0", "--max-ram", "60000"});
  EXPECT_EQ(document["budget"]["ram_budget_bytes"], 60000);
  EXPECT_GT(document["tiers"]["disk"]["block_count"], 0);
  EXPECT_LE(document["budget"]["ram_used_bytes"], 60000);
  expect_failure(run({"plan", "model.safetensors", "--max-vram=0", "--max-ram=1KB"}), 5,
                 {"1.00 kB", "--max-ram"});
  expect_failure(run({"plan", "model.safetensors", "--max-vram=0", "--max-ram=60000", "--no-disk"}),
                 5, {});
}

TEST_F(PlanCommand, SizesArePercentagesOfTheMachineToo) {
  const nlohmann::json whole = plan({"--max-vram=0"});
  const std::uint64_t limit_bytes = whole["hardware"]["ram_limit_bytes"];
  const std::uint64_t half_bytes =
      plan({"--max-vram=0", "--max-ram", "50%"})["budget"]["ram_budget_bytes"];
  EXPECT_NEAR(static_cast<double>(half_bytes), static_cast<double>(limit_bytes) / 2, 1.0);
  expect_failure(run({"plan", "model.safetensors", "--max-ram=-1GB"}), 2, {"--max-ram", "-1GB"});
  expect_failure(run({"plan", "model.safetensors", "--max-ram=8Gbit"}), 2, {"--max-ram"});
}

TEST_F(PlanCommand, WritesTomlThatRepackReads) {
  const RunResult written = run({"plan", "model.safetensors", "-o", "plan.toml"});
  EXPECT_EQ(written.exit_code, 0) << written.err;
  EXPECT_THAT(written.err,
              HasSubstr("next: trash-panda repack model.safetensors --plan plan.toml"));
  EXPECT_THAT(names(), ElementsAre("model.safetensors", "plan.toml"));
  const RunResult printed = run({"plan", "model.safetensors", "-o", "-"});
  EXPECT_EQ(printed.out, read_text(path("plan.toml")));
  EXPECT_THAT(printed.out, HasSubstr("[[block]]"));
  EXPECT_EQ(run({"repack", "model.safetensors", "--plan", "plan.toml", "-n"}).exit_code, 0);
}

TEST_F(PlanCommand, KeepsAnExistingFileUnlessForced) {
  ASSERT_EQ(run({"plan", "model.safetensors", "--max-vram=0", "-o", "plan.toml"}).exit_code, 0);
  const std::string mine = "# mine\n" + read_text(path("plan.toml"));
  write_text(path("plan.toml"), mine);
  expect_failure(run({"plan", "model.safetensors", "-o", "plan.toml"}), 7,
                 {"plan.toml already exists", "-f"});
  EXPECT_EQ(read_text(path("plan.toml")), mine);
  EXPECT_EQ(run({"plan", "model.safetensors", "-o", "plan.toml", "-f"}).exit_code, 0);
  EXPECT_THAT(read_text(path("plan.toml")), AllOf(HasSubstr("[model]"), Not(HasSubstr("mine"))));
  EXPECT_THAT(names(), ElementsAre("model.safetensors", "plan.toml"));
  expect_failure(run({"plan", "model.safetensors", "-f", "-o", "."}), 7, {"not a regular file"});
  expect_failure(run({"plan", "model.safetensors", "-o", "absent/plan.toml"}), 7, {"absent"});
}

TEST_F(PlanCommand, ForceReplacesNothingButPlans) {
  const std::string before = read_text(path("model.safetensors"));
  std::filesystem::create_symlink("model.safetensors", path("link"));
  expect_failure(run({"plan", "model.safetensors", "-f", "-o", "link"}), 7,
                 {"link is no plan", "-o"});
  EXPECT_EQ(read_text(path("model.safetensors")), before);

  for (const char* name : {"model.safetensors.index.json", "config.json", "notes.toml"}) {
    write_text(path(name), "title = \"mine\"\n");
    expect_failure(run({"plan", "model.safetensors", "-f", "-o", name}), 7, {name, "no plan"});
    EXPECT_EQ(read_text(path(name)), "title = \"mine\"\n");
  }
  write_text(path("empty.toml"), "");
  EXPECT_EQ(run({"plan", "model.safetensors", "-f", "-o", "empty.toml"}).exit_code, 0);
}

TEST_F(PlanCommand, TellsOfFlagsWithoutEffect) {
  for (const char* flag : {"--headroom-vram", "--activation-vram"}) {
    const RunResult result = run({"plan", "model.safetensors", "--max-vram=0", flag, "1GB"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr(std::string("warning: ") + flag));
  }
}

TEST_F(PlanCommand, TellsThatAnotherMachineIsNotProbed) {
  const std::string machine =
      std::string(TP_SOURCE_DIR) + "/schemas/examples/hardware/small-vm.json";
  const RunResult result =
      run({"plan", "model.safetensors", "--hw", machine, "--probe", "force", "-n"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: --probe has no effect"));
}

TEST_F(PlanCommand, RefusesAnEmptyOutputName) {
  expect_failure(run({"plan", "model.safetensors", "-o", ""}), 2, {"-o"});
}

TEST_F(PlanCommand, DryRunAndCheckWriteNothing) {
  EXPECT_EQ(run({"plan", "model.safetensors", "-n", "-o", "plan.toml"}).exit_code, 0);
  EXPECT_EQ(run({"plan", "model.safetensors", "--check", "-o", "plan.toml"}).exit_code, 0);
  EXPECT_THAT(names(), ElementsAre("model.safetensors"));
  EXPECT_EQ(
      run({"plan", "model.safetensors", "--check", "--max-vram=0", "--max-ram=1KB"}).exit_code, 5);
}

TEST_F(PlanCommand, RefusesTwoResultsOnStdout) {
  const RunResult result = run({"plan", "model.safetensors", "--json", "-o", "-"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(nlohmann::json::parse(result.err)["message"].get<std::string>(), HasSubstr("stdout"));
}

TEST_F(PlanCommand, RefusesAPack) {
  ASSERT_EQ(run({"repack", "model.safetensors"}).exit_code, 0);
  expect_failure(run({"plan", "model.panda"}), 4, {"model.panda is a pack", "model.safetensors"});
}

TEST_F(PlanCommand, WarnsOfNamesThatRepackRefuses) {
  SafetensorsBuilder()
      .add_random("layers.0.weight", format::Dtype::kBf16, {4, 4})
      .add_random("__pad__.weight", format::Dtype::kBf16, {4, 4})
      .write(path("reserved.safetensors"));
  const RunResult planned = run({"plan", "reserved.safetensors", "-n"});
  EXPECT_EQ(planned.exit_code, 0);
  EXPECT_THAT(planned.err, HasSubstr("\"__pad__.weight\" has a name that packs reserve"));
  expect_failure(run({"repack", "reserved.safetensors"}), 4, {"__pad__.weight"});
}

}  // namespace
}  // namespace trash_panda::testing
