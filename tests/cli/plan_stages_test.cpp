#include <filesystem>
#include <string>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

constexpr const char* kPipelineMachine =
    TP_SOURCE_DIR "/schemas/examples/hardware/rtx3060-16gb-sata.json";

/// A pipeline of three models in folders of their own, and a file that names them in order.
class PlanStages : public CliTest {
 protected:
  PlanStages() {
    for (const char* name : {"text_encoder", "unet", "vae"}) {
      fs::create_directories(path("pipe") / name);
      write_model(path("pipe") / name / "model.safetensors");
    }
    write_stages("", "");
  }

  void write_stages(const std::string& encode, const std::string& denoise) const {
    write_text(path("pipe/stages.toml"),
               "# Relative to this file.\n"
               "[[stage]]\nname = \"encode\"\nmodel = \"text_encoder\"\n" +
                   encode + "\n[[stage]]\nname = \"denoise\"\nmodel = \"unet\"\nsteps = 20\n" +
                   denoise + "\n[[stage]]\nname = \"decode\"\nmodel = \"vae/model.safetensors\"\n");
  }

  [[nodiscard]] RunResult plan(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"plan", "--stages", "pipe/stages.toml", "--hw",
                                          kPipelineMachine};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  [[nodiscard]] nlohmann::json document(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), "--json");
    const RunResult result = plan(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
};

TEST_F(PlanStages, PlansEachModelAndSaysWhatIsLoadedAhead) {
  const RunResult result = plan({"--compute-ms", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("pipe/stages.toml  3 stages"), HasSubstr("encode"),
                    HasSubstr("while encode runs: base and 4 of 4 blocks of denoise are loaded"),
                    HasSubstr("while denoise runs: base and 4 of 4 blocks of decode are loaded"),
                    HasSubstr("peak RAM "), HasSubstr("peak VRAM "), HasSubstr("predicted ")));
}

TEST_F(PlanStages, TellsMemoryAndTimeOfEachStage) {
  const nlohmann::json document = this->document({"--compute-ms", "1"});
  EXPECT_EQ(document["schema"], "trash-panda/stages/1");
  ASSERT_EQ(document["stages"].size(), 3U);
  const nlohmann::json& encode = document["stages"][0];
  const nlohmann::json& denoise = document["stages"][1];
  EXPECT_EQ(encode["name"], "encode");
  EXPECT_EQ(encode["preload"]["has_base"], false);
  EXPECT_EQ(denoise["step_count"], 20);
  EXPECT_EQ(denoise["model"]["argument"], "unet");
  EXPECT_THAT(denoise["model"]["path"].get<std::string>(), ::testing::EndsWith("/pipe/unet"));
  EXPECT_EQ(denoise["preload"]["block_count"], kBlockCount);
  EXPECT_GT(denoise["preload"]["saved_s"].get<double>(), 0);
  // 20 steps of 1 ms; loaded ahead, the first is no longer.
  EXPECT_NEAR(denoise["predicted"]["stage_s"].get<double>(), 0.02, 1e-9);
  EXPECT_EQ(encode["memory"]["vram_peak_bytes"].get<std::uint64_t>(),
            encode["memory"]["vram_used_bytes"].get<std::uint64_t>() +
                denoise["memory"]["vram_used_bytes"].get<std::uint64_t>());
  EXPECT_EQ(document["vram_peak_bytes"], encode["memory"]["vram_peak_bytes"]);
  EXPECT_EQ(denoise["output"], nullptr);
}

TEST_F(PlanStages, TakesOptionsOfAStageOverThoseOfTheCommandLine) {
  write_stages("keep = true\n", "max_ram = 30000\nmax_vram = \"100000\"\nassign = [\"disk=*\"]\n");
  const nlohmann::json document = this->document({"--assign", "gpu=*"});
  EXPECT_EQ(document["stages"][0]["tiers"]["gpu"]["block_count"], kBlockCount);
  EXPECT_EQ(document["stages"][1]["tiers"]["disk"]["block_count"], kBlockCount);
  const nlohmann::json& memory = document["stages"][1]["memory"];
  EXPECT_EQ(memory["vram_held_bytes"], document["stages"][0]["memory"]["vram_used_bytes"]);
  EXPECT_EQ(memory["vram_budget_bytes"].get<std::uint64_t>() +
                memory["vram_held_bytes"].get<std::uint64_t>(),
            100'000U);
}

TEST_F(PlanStages, WritesAPlanForEachStage) {
  const nlohmann::json document = this->document({"-o", "plans"});
  EXPECT_EQ(document["stages"][1]["output"], "plans/denoise.toml");
  for (const char* name : {"encode", "denoise", "decode"}) {
    EXPECT_TRUE(fs::exists(path("plans") / fmt::format("{}.toml", name)));
  }
  EXPECT_EQ(run({"repack", "pipe/unet", "--plan", "plans/denoise.toml"}).exit_code, 0);
  // What is there is kept, unless asked otherwise, and then only a plan is replaced.
  expect_failure(plan({"-o", "plans"}), 7, {"plans/encode.toml"});
  EXPECT_EQ(plan({"-o", "plans", "-f"}).exit_code, 0);
  write_text(path("plans/decode.toml"), "not a plan");
  expect_failure(plan({"-o", "plans", "-f"}), 7, {"plans/decode.toml"});
  EXPECT_EQ(plan({"-o", "dry", "-n"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(path("dry")));
}

TEST_F(PlanStages, NamesTheStageThatCannotBePlanned) {
  write_stages("", "max_ram = \"much\"\n");
  expect_failure(plan(), 2, {"stage denoise", "max_ram"});
  write_stages("", "max_ram = 30000\nmax_vram = 100\n");
  expect_failure(plan(), 5, {"stage denoise"});
  fs::remove_all(path("pipe/vae"));
  write_stages("", "");
  expect_failure(plan(), 3, {"stage decode", "vae/model.safetensors"});
}

TEST_F(PlanStages, RefusesWhatContradictsAPipeline) {
  expect_failure(run({"plan", "model.safetensors", "--stages", "pipe/stages.toml"}), 2,
                 {"--stages and MODEL"});
  expect_failure(run({"plan"}), 2, {"MODEL is missing"});
  expect_failure(plan({"-o", "-"}), 2, {"folder"});
  expect_failure(run({"plan", "--stages", "missing.toml"}), 3, {"missing.toml"});
  write_stages("", "max_rma = 1\n");
  expect_failure(plan(), 4, {"pipe/stages.toml:10:1", "did you mean max_ram?"});
}

TEST_F(PlanStages, ChecksWhetherAllFit) {
  EXPECT_EQ(plan({"--check"}).exit_code, 0);
}

}  // namespace
}  // namespace trash_panda::testing
