#include <string>
#include <vector>

#include "cli_test.h"
#include "run_log.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string record(std::uint64_t pass, const std::string& name, double compute_s) {
  return nlohmann::json{{"type", "block"}, {"pass", pass}, {"name", name}, {"compute_s", compute_s}}
             .dump() +
         "\n";
}

TEST(RunLog, TakesTheMedianAfterTheFirstPass) {
  const std::string text = record(1, "a", 9) + record(1, "b", 9) + record(2, "a", 1) +
                           record(3, "a", 5) + record(4, "a", 2) + record(2, "b", 1) +
                           "{\"type\":\"span\",\"what\":[1,2]}\n" + record(3, "b", 2) +
                           record(1, "c", 1);
  const cli::RunLog log = cli::parse_run_log(text, "run.jsonl").value();
  EXPECT_THAT(cli::median_compute_s(log), ElementsAre(Pair("a", 2), Pair("b", 1.5)));
}

TEST(RunLog, RefusesWithTheLine) {
  const struct {
    std::string line;
    std::string message;
  } cases[] = {
      {"not json", "not a JSON object"},
      {"[1]", "not a JSON object"},
      {"", "not a JSON object"},
      {std::string(100'000, '['), "not a JSON object"},
      {"{}", "type must be a string"},
      {R"({"type":1})", "type must be a string"},
      {R"({"type":"block","name":"a","compute_s":1})", "pass must be a whole number from 1"},
      {R"({"type":"block","pass":0,"name":"a","compute_s":1})", "pass must be"},
      {R"({"type":"block","pass":-1,"name":"a","compute_s":1})", "pass must be"},
      {R"({"type":"block","pass":1.5,"name":"a","compute_s":1})", "pass must be"},
      {R"({"type":"block","pass":1,"compute_s":1})", "name must be a string"},
      {R"({"type":"block","pass":1,"name":"a"})", "compute_s must be a number"},
      {R"({"type":"block","pass":1,"name":"a","compute_s":-1})", "compute_s must be"},
      {R"({"type":"block","pass":1,"name":"a","compute_s":"1"})", "compute_s must be"},
      {R"({"type":"block","pass":1,"name":"a","compute_s":86401})", "compute_s must be"},
      {R"({"type":"block","pass":7,"name":"b","compute_s":1})", "b is computed a second time"},
  };
  for (const auto& wrong : cases) {
    const auto log = cli::parse_run_log(record(7, "b", 1) + wrong.line + "\n", "run.jsonl");
    ASSERT_FALSE(log) << wrong.line;
    EXPECT_EQ(log.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(log.error().message(), AllOf(HasSubstr("run.jsonl:2: "), HasSubstr(wrong.message)));
  }
  const auto cut_off = cli::parse_run_log(record(7, "b", 1) + R"({"type":"bl)", "run.jsonl");
  ASSERT_FALSE(cut_off);
  EXPECT_THAT(cut_off.error().hint(), HasSubstr("cut off"));
}

class PlanProfile : public CliTest {
 protected:
  void write_log(double scale) const {
    std::string text;
    for (std::uint64_t pass = 1; pass <= 3; ++pass) {
      for (std::uint64_t block = 0; block < kBlockCount; ++block) {
        text += record(pass, fmt::format("layers.{}", block),
                       scale * static_cast<double>(block + 1) * (pass == 1 ? 50 : 1));
      }
    }
    write_text(path("run.jsonl"), text);
  }

  [[nodiscard]] std::vector<std::string> with(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {"plan", "model.safetensors", "--hw",
                      TP_SOURCE_DIR "/schemas/examples/hardware/rtx3060-16gb-sata.json"});
    return arguments;
  }
};

TEST_F(PlanProfile, GivesEachBlockItsTime) {
  write_log(0.001);
  const RunResult result = run(with({"--profile=run.jsonl", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document["rates"]["compute_source"], "profile");
  for (std::size_t block = 0; block < kBlockCount; ++block) {
    EXPECT_DOUBLE_EQ(document["blocks"][block]["compute_s"].get<double>(),
                     0.001 * static_cast<double>(block + 1));
  }
}

TEST_F(PlanProfile, IsRecordedInThePlan) {
  write_log(0.001);
  const std::string text = run(with({"--profile=run.jsonl", "-o-"})).out;
  write_text(path("plan.toml"), text);
  EXPECT_EQ(run(with({"--from=plan.toml", "-o-"})).out, text);
  EXPECT_EQ(run(with({"--from=plan.toml", "--compute-ms=2", "-o-"})).out,
            run(with({"--compute-ms=2", "-o-"})).out);
  write_log(0.002);
  EXPECT_EQ(run(with({"--from=plan.toml", "--profile=run.jsonl", "-o-"})).out,
            run(with({"--profile=run.jsonl", "-o-"})).out);
}

TEST_F(PlanProfile, RefusesWhatIsOfNoUse) {
  write_text(path("first.jsonl"), record(1, "layers.0", 1));
  expect_failure(run(with({"--profile=first.jsonl"})), 4,
                 {"no pass after the first", "two passes"});
  write_text(path("empty.jsonl"), "");
  expect_failure(run(with({"--profile=empty.jsonl"})), 4, {"no records of blocks"});
  write_text(path("other.jsonl"), record(2, "layer.0", 1));
  expect_failure(run(with({"--profile=other.jsonl"})), 10,
                 {"another model", "layer.0", "nearest is layers.0"});
  write_text(path("part.jsonl"), record(2, "layers.0", 1));
  expect_failure(run(with({"--profile=part.jsonl"})), 10, {"nothing of layers.1"});
  expect_failure(run(with({"--profile=model.safetensors"})), 4, {"model.safetensors:1"});
  expect_failure(run(with({"--profile=none.jsonl"})), 3, {"none.jsonl"});
  expect_failure(run(with({"--profile=part.jsonl", "--compute-ms=1"})), 2,
                 {"--compute-ms and --profile"});
  expect_failure(run({"plan", "model.safetensors", "--hw=-", "--profile=-"}), 2,
                 {"both want stdin"});
}

}  // namespace
}  // namespace trash_panda::testing
