#include <string>
#include <vector>

#include "cli_test.h"
#include "document_compare.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kSlow = TP_SOURCE_DIR "/schemas/examples/hardware/rtx3060-16gb-sata.json";
constexpr const char* kFast = TP_SOURCE_DIR "/schemas/examples/hardware/rtx4090-nvme4.json";

std::vector<std::string> differing_paths(const std::string& first, const std::string& second) {
  std::vector<std::string> paths;
  for (const cli::Difference& difference :
       cli::compare_documents(cli::Json::parse(first), cli::Json::parse(second)).differences) {
    paths.push_back(difference.path);
  }
  return paths;
}

TEST(CompareDocuments, GoesByPathAndName) {
  EXPECT_THAT(differing_paths(R"({"a":1,"b":{"c":[1,2]}})", R"({"b":{"c":[1,2]},"a":1})"),
              IsEmpty());
  EXPECT_THAT(differing_paths(R"({"a":1,"b":{"c":[1,2]}})", R"({"b":{"c":[2,1]},"d":1})"),
              ElementsAre("a", "b.c", "d"));
  const std::string list = R"({"block":[{"name":"x","v":1},{"name":"y","v":2}]})";
  EXPECT_THAT(differing_paths(list, R"({"block":[{"name":"y","v":2},{"name":"x","v":1}]})"),
              IsEmpty());
  EXPECT_THAT(differing_paths(list, R"({"block":[{"name":"x","v":1},{"name":"y","v":3}]})"),
              ElementsAre("block.y.v"));
  // Other items go by their place.
  EXPECT_THAT(differing_paths(R"({"l":[{"v":1},{"v":2}]})", R"({"l":[{"v":1},{"v":3},{"v":4}]})"),
              ElementsAre("l.1.v", "l.2.v"));
  EXPECT_THAT(
      differing_paths(R"({"gpus":[{"name":"x","v":1}]})", R"({"gpus":[{"name":"y","v":1}]})"),
      ElementsAre("gpus.0.name"));
}

class DiffCommand : public CliTest {
 protected:
  void write_plan(const std::string& name, std::vector<std::string> options) const {
    options.insert(options.begin(), {"plan", "model.safetensors", "--hw", kSlow, "-o", name});
    const RunResult made = run(options);
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
};

TEST_F(DiffCommand, ExitsWithItsAnswer) {
  write_plan("a.toml", {});
  write_plan("b.toml", {"--assign", "disk=0-2", "--max-ram", "8GB"});
  const RunResult differ = run({"diff", "a.toml", "b.toml"});
  EXPECT_EQ(differ.exit_code, 1);
  EXPECT_EQ(differ.err, "");
  EXPECT_THAT(differ.out, AllOf(HasSubstr("budget.ram_bytes"), HasSubstr("8.00 GB"),
                                HasSubstr("\nrequest.max_ram_bytes"), HasSubstr("block 0-2.tier"),
                                Not(HasSubstr("model."))));
  write_text(path("c.toml"), "# mine\n\n" + read_text(path("a.toml")));
  const RunResult same = run({"diff", "a.toml", "c.toml"});
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_EQ(same.out, "nothing differs\n");
}

TEST_F(DiffCommand, TellsScripts) {
  write_plan("a.toml", {});
  write_plan("b.toml", {"--assign", "disk=3"});
  const RunResult result = run({"diff", "--json", "a.toml", "b.toml"});
  EXPECT_EQ(result.exit_code, 1);
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["schema"], "trash-panda/diff/1");
  EXPECT_EQ(document["kind"], "plan");
  EXPECT_EQ(document["same"], false);
  bool has_tier = false;
  for (const nlohmann::json& difference : document["differences"]) {
    if (difference["path"] == "block.layers.3.tier") {
      has_tier = true;
      EXPECT_EQ(difference["a"], "gpu");
      EXPECT_EQ(difference["b"], "disk");
    }
  }
  EXPECT_TRUE(has_tier) << result.out;
}

TEST_F(DiffCommand, ComparesMachines) {
  EXPECT_EQ(run({"diff", kSlow, kSlow}).exit_code, 0);
  const RunResult result = run({"diff", kSlow, kFast});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("400 MB/s"), HasSubstr(" %")));
}

TEST_F(DiffCommand, ComparesRunLogs) {
  const auto log = [](double seconds) {
    return fmt::format("{{\"type\":\"block\",\"pass\":2,\"name\":\"a\",\"compute_s\":{}}}\n",
                       seconds);
  };
  write_text(path("a.jsonl"), log(0.5));
  write_text(path("b.jsonl"), log(0.75));
  EXPECT_EQ(run({"diff", "a.jsonl", "a.jsonl"}).exit_code, 0);
  const RunResult result = run({"diff", "a.jsonl", "b.jsonl"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("block.a.compute_s  500 ms  750 ms  +50 %\n"));
}

TEST_F(DiffCommand, ComparesThePassesOfRunLogs) {
  const auto log = [](double wait_s) {
    return fmt::format(R"({{"type":"blocks","blocks":[{{"name":"a","tier":"disk"}}]}}
{{"type":"span","kind":"wait","cause":"read","pass":2,"block":"a","begin_s":1,"end_s":{}}}
{{"type":"span","kind":"compute","pass":2,"block":"a","begin_s":2,"end_s":3}}
{{"type":"block","pass":2,"name":"a","compute_s":1}}
{{"type":"pass","pass":2,"begin_s":1,"end_s":{},"read_bytes_ram":0,"read_bytes_disk":5000000}}
)",
                       1 + wait_s, 3 + wait_s);
  };
  write_text(path("a.jsonl"), log(0.5));
  write_text(path("b.jsonl"), log(1));
  EXPECT_EQ(run({"diff", "a.jsonl", "a.jsonl"}).exit_code, 0);
  const RunResult result = run({"diff", "a.jsonl", "b.jsonl"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("pass.duration_s         2.5 s   3 s  +20 %\n"));
  EXPECT_THAT(result.out, HasSubstr("pass.stalled_by_read_s  500 ms  1 s  +100 %\n"));
  EXPECT_THAT(result.out, HasSubstr("block.a.stall_s         500 ms  1 s  +100 %\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("compute_s")));
}

TEST_F(DiffCommand, ReadsAPipe) {
  write_plan("a.toml", {});
  const RunResult piped = run_shell("\"$TP\" diff a.toml - < a.toml",
                                    {.folder = folder_.path(), .environment = {}, .program = {}});
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  expect_failure(run({"diff", "-", "-"}), 2, {"can't both be stdin"});
}

TEST_F(DiffCommand, RefusesWhatCannotBeCompared) {
  write_plan("a.toml", {});
  expect_failure(run({"diff", "a.toml", kSlow}), 2, {"a.toml is a plan", "a machine"});
  expect_failure(run({"diff", "a.toml", "none.toml"}), 3, {"none.toml"});
  expect_failure(run({"diff", "a.toml", "model.safetensors"}), 4, {"model.safetensors"});
  write_text(path("bad.toml"), "[budgt]\nversion = 1\n");
  expect_failure(run({"diff", "a.toml", "bad.toml"}), 4, {"bad.toml"});
  expect_failure(run({"diff", "a.toml"}), 2, {"B is missing"});
}

}  // namespace
}  // namespace trash_panda::testing
