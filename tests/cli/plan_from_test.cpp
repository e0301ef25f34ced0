#include <string>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kMachine = TP_SOURCE_DIR "/schemas/examples/hardware/rtx3060-16gb-sata.json";

class PlanFrom : public CliTest {
 protected:
  /// The plan as TOML, on a described machine.
  [[nodiscard]] std::string plan(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"plan", "model.safetensors", "--hw", kMachine, "-o", "-"});
    const RunResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }

  void edit(const std::string& from, const std::string& to) const {
    std::string text = read_text(path("plan.toml"));
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_text(path("plan.toml"), text.replace(at, from.size(), to));
  }
};

TEST_F(PlanFrom, AsksForTheSameAgain) {
  for (const std::vector<std::string>& options : std::vector<std::vector<std::string>>{
           {},
           {"--max-ram=30000", "--max-vram=40000", "--compute-ms=2.5"},
           {"--max-vram=60000", "--resident-blocks=1", "--max-pinned=30000", "--lookahead=1"},
           {"--assign=disk=layers.*", "--assign=ram=-1", "--placement=greedy"},
           {"--no-disk", "--min-free-ram=10%", "--activation-vram=1GB", "--compute-dtype=fp32"},
           {"--group=layers", "--headroom-vram=2GB"},
       }) {
    const std::string first = plan(options);
    write_text(path("plan.toml"), first);
    EXPECT_EQ(plan({"--from", "plan.toml"}), first);
  }
}

TEST_F(PlanFrom, LetsOtherOptionsWin) {
  write_text(path("plan.toml"), plan({"--max-ram=30000", "--max-vram=40000", "--compute-ms=2.5"}));
  EXPECT_EQ(plan({"--from=plan.toml", "--max-ram=50000"}),
            plan({"--max-ram=50000", "--max-vram=40000", "--compute-ms=2.5"}));
  EXPECT_EQ(plan({"--from=plan.toml", "--max-ram=auto", "--max-vram=auto", "--compute-ms=auto"}),
            plan({}));
  const std::string assigned = plan({"--assign=disk=0-1", "--assign=ram=1"});
  write_text(path("plan.toml"), plan({"--assign=disk=0-1"}));
  EXPECT_EQ(plan({"--from=plan.toml", "--assign=ram=1"}), assigned);
}

TEST_F(PlanFrom, KeepsCommentsAndWhatWasChangedByHand) {
  ASSERT_EQ(run({"plan", "model.safetensors", "--hw", kMachine, "-o", "plan.toml"}).exit_code, 0);
  edit("[budget]", "# the browser needs the rest\n[budget]");
  edit("name = \"layers.2\"\ntier = \"gpu\"", "name = \"layers.2\"\ntier = \"disk\"  # try this");
  const std::vector<std::string> again = {"plan",   "model.safetensors", "--hw", kMachine,   "-f",
                                          "--from", "plan.toml",         "-o",   "plan.toml"};
  const RunResult result = run(again);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string kept = read_text(path("plan.toml"));
  EXPECT_THAT(kept, AllOf(HasSubstr("# the browser needs the rest\n[budget]\n"),
                          HasSubstr("name = \"layers.2\"\ntier = \"disk\"  # try this\n"),
                          HasSubstr("assign = [\"disk=2\"]\n"), HasSubstr("placed = \"ggdg\"")));
  EXPECT_EQ(run(again).exit_code, 0);
  EXPECT_EQ(read_text(path("plan.toml")), kept);
  // A budget changed by hand is one that was asked for.
  edit("ram_bytes = ", "ram_bytes = 60000 # ");
  EXPECT_EQ(run(again).exit_code, 0);
  EXPECT_THAT(read_text(path("plan.toml")), HasSubstr("max_ram_bytes = 60000  # 60.0 kB\n"));
}

TEST_F(PlanFrom, ReadsStdin) {
  const RunResult piped = run_shell(
      "\"$TP\" plan model.safetensors --hw \"$HW\" --max-ram 30000 --max-vram 40000 -o - | "
      "\"$TP\" plan model.safetensors --hw \"$HW\" --from - -o -",
      {.folder = folder_.path(), .environment = {{"HW", kMachine}}, .program = {}});
  EXPECT_EQ(piped.out, plan({"--max-ram=30000", "--max-vram=40000"})) << piped.err;
}

TEST_F(PlanFrom, RefusesWhatIsNoPlan) {
  expect_failure(run({"plan", "model.safetensors", "--from", "none.toml"}), 3, {"none.toml"});
  write_text(path("plan.toml"), plan({}));
  edit("[settings]", "[setings]");
  expect_failure(run({"plan", "model.safetensors", "--from", "plan.toml"}), 4,
                 {"plan.toml:", "setings", "did you mean settings?"});
  const RunResult empty = run({"plan", "model.safetensors", "--from", "-"});
  expect_failure(empty, 4, {"stdin:", "version is missing"});
}

}  // namespace
}  // namespace trash_panda::testing
