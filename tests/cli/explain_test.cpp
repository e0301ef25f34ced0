#include <string>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A plan of four blocks in three tiers, in `plan.toml`.
class ExplainCommand : public CliTest {
 protected:
  ExplainCommand() {
    // VRAM for base, two slots and one block; RAM for three slots and no more than one block.
    const RunResult made = run(plan_with({"-o", "plan.toml"}));
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }

  static std::vector<std::string> plan_with(std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        "plan",         "model.safetensors",
        "--hw",         TP_SOURCE_DIR "/schemas/examples/hardware/rtx3060-16gb-sata.json",
        "--max-vram",   "50000",
        "--max-ram",    "50000",
        "--assign",     "disk=3",
        "--compute-ms", "0.01"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  [[nodiscard]] nlohmann::json explain(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"explain", "--json"});
    const RunResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }

  void move_block(const std::string& name, const std::string& from, const std::string& to) const {
    std::string text = read_text(path("plan.toml"));
    const std::string before = fmt::format("name = \"{}\"\ntier = \"{}\"", name, from);
    const std::size_t at = text.find(before);
    ASSERT_NE(at, std::string::npos) << text;
    write_text(
        path("plan.toml"),
        text.replace(at, before.size(), fmt::format("name = \"{}\"\ntier = \"{}\"", name, to)));
  }
};

TEST_F(ExplainCommand, SimulatesEachMove) {
  const nlohmann::json document = explain({"plan.toml"});
  EXPECT_EQ(document["schema"], "trash-panda/explain/1");
  ASSERT_EQ(document["blocks"].size(), kBlockCount);
  const nlohmann::json& last = document["blocks"][3];
  EXPECT_EQ(last["tier"], "disk");
  EXPECT_EQ(last["reason"], "assigned");
  EXPECT_NEAR(last["read_s"].get<double>(), kBlockBytes / 400e6, 1e-12);
  // What is said of a move is what a plan with it predicts.
  for (const nlohmann::json& move : last["moves"]) {
    if (!move["fits"].get<bool>()) {
      continue;
    }
    move_block("layers.3", "disk", move["tier"]);
    const nlohmann::json moved = explain({"plan.toml"});
    EXPECT_NEAR(moved["pass_s"].get<double>(), move["pass_s"].get<double>(), 1e-12);
    EXPECT_NEAR(move["pass_change_s"].get<double>(),
                moved["pass_s"].get<double>() - document["pass_s"].get<double>(), 1e-12);
    EXPECT_EQ(moved["blocks"][3]["reason"], "edited");
    move_block("layers.3", move["tier"], "disk");
  }
  EXPECT_LT(last["moves"].back()["pass_change_s"], 0) << "RAM beats this disk";
}

TEST_F(ExplainCommand, TellsWhichMemoryIsShort) {
  const nlohmann::json document = explain({"plan.toml"});
  std::size_t resident_count = 0;
  for (const nlohmann::json& block : document["blocks"]) {
    resident_count += block["tier"] == "gpu" ? 1U : 0U;
    if (block["tier"] == "ram") {
      EXPECT_EQ(block["reason"], "no_room");
      EXPECT_THAT(block["because"].get<std::string>(), HasSubstr("VRAM is full: with it "));
      EXPECT_EQ(block["moves"][0]["tier"], "gpu");
      EXPECT_EQ(block["moves"][0]["fits"], false);
      EXPECT_GT(block["moves"][0]["vram_change_bytes"], 0);
      EXPECT_LT(block["moves"][0]["ram_change_bytes"], 0);
      EXPECT_EQ(block["moves"][1]["tier"], "disk");
      EXPECT_GE(block["moves"][1]["pass_change_s"], 0);
    }
  }
  EXPECT_GT(resident_count, 0U);
}

TEST_F(ExplainCommand, ReadsWell) {
  const RunResult result = run({"explain", "plan.toml", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("VRAM "), HasSubstr("\nstep "), HasSubstr(" binds with "),
                                HasSubstr("\nblock 3  disk: as --assign asks; read 20.8 µs, copy "),
                                HasSubstr("\n  to gpu  step "), HasSubstr("\n  to ram  step ")));
  EXPECT_THAT(result.out, Not(HasSubstr("block 0")));
  EXPECT_THAT(run({"explain", "plan.toml", "--", "-1"}).out, HasSubstr("\nblock 3  disk"));
  EXPECT_THAT(run({"explain", "plan.toml", "layers.*"}).out, HasSubstr("  gpu: VRAM has room"));
}

TEST_F(ExplainCommand, ReadsAPlanFromAPipe) {
  const RunResult piped = run_shell("\"$TP\" explain - 3 < plan.toml",
                                    {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(piped.out, run({"explain", "plan.toml", "3"}).out) << piped.err;
}

TEST_F(ExplainCommand, KnowsMemoryWithoutRates) {
  const RunResult made = run({"plan", "model.safetensors", "--probe=never", "--max-vram=0",
                              "--assign", "disk=*", "-o", "unmeasured.toml"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const nlohmann::json document = explain({"unmeasured.toml"});
  EXPECT_EQ(document["pass_s"], nullptr);
  EXPECT_EQ(document["blocks"][0]["moves"].size(), 1U) << "there is no VRAM";
  EXPECT_EQ(document["blocks"][0]["moves"][0]["pass_s"], nullptr);
  EXPECT_EQ(document["blocks"][0]["moves"][0]["fits"], true);
  EXPECT_THAT(run({"explain", "unmeasured.toml"}).out,
              AllOf(HasSubstr("no step is predicted"), HasSubstr("step not known")));
}

TEST_F(ExplainCommand, RefusesWhatItCannotExplain) {
  expect_failure(run({"explain", "plan.toml", "9"}), 2, {"there is no block 9"});
  expect_failure(run({"explain", "plan.toml", "blocks.*"}), 2, {"matches no block", "layers.0"});
  expect_failure(run({"explain", "none.toml"}), 3, {"none.toml"});
  expect_failure(run({"explain", "model.safetensors"}), 4, {"model.safetensors"});
  expect_failure(run({"explain"}), 2, {"PLAN is missing"});
  expect_failure(run({"explain", "plan.toml", "--jsn"}), 2, {"did you mean --json?"});
}

TEST_F(ExplainCommand, IsWhatPlanWhySays) {
  const RunResult text = run(plan_with({"--why"}));
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("\ntier  because "), HasSubstr("as --assign asks"),
                              HasSubstr(" binds with ")));
  const RunResult json = run(plan_with({"--why", "--json"}));
  EXPECT_EQ(nlohmann::json::parse(json.out)["why"], explain({"plan.toml"})["blocks"]);
  EXPECT_FALSE(nlohmann::json::parse(run(plan_with({"--json"})).out).contains("why"));
  EXPECT_THAT(run(plan_with({"--why", "-o", "-"})).err, HasSubstr("--why has no effect"));
}

}  // namespace
}  // namespace trash_panda::testing
