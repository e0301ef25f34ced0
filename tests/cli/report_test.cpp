#include <string>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A run of one pass in `run.jsonl`.
class ReportCommand : public CliTest {
 protected:
  ReportCommand() {
    write_text(path("run.jsonl"),
               R"({"type":"run","schema":"trash-panda/run-log/1","pack":"m.panda","io":"pread x4"}
{"type":"blocks","blocks":[{"name":"a","tier":"disk","stored_bytes":9}]}
{"type":"memory","at_s":0.1,"booked_bytes":3000000,"text":"plenty"}
{"type":"span","kind":"wait","pass":1,"block":"a","begin_s":0.5,"end_s":0.75}
{"type":"pass","pass":1,"begin_s":0.5,"end_s":1.0,"read_bytes_ram":0,"read_bytes_disk":9}
)");
  }
};

TEST_F(ReportCommand, SummarisesARun) {
  const RunResult result = run({"report", "run.jsonl"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("run.jsonl  m.panda  pread x4\n1 block"));
  EXPECT_THAT(result.out, HasSubstr("250 ms"));
  EXPECT_EQ(run({"report", "run.jsonl", "--to", "summary", "-o", "-"}).out, result.out);
}

TEST_F(ReportCommand, PrintsTheSameAsADocument) {
  const RunResult result = run({"report", "run.jsonl", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json document = nlohmann::json::parse(result.out);
  EXPECT_EQ(document.at("schema"), "trash-panda/report/1");
  EXPECT_EQ(document.at("passes").at(0).at("wait_s"), 0.25);
  EXPECT_EQ(document.at("passes").at(0).at("stalls_s").at("read"), 0.25);
  EXPECT_EQ(document.at("blocks").at(0).at("stall_cause"), "read");
  EXPECT_TRUE(document.at("predicted").is_null());
  EXPECT_EQ(document.at("passes").at(0).at("read_bytes_disk"), 9);
}

TEST_F(ReportCommand, WritesATraceAndReplacesItOnlyWhenForced) {
  const std::vector<std::string> command = {"report",   "run.jsonl", "--to",
                                            "perfetto", "-o",        "trace.json"};
  EXPECT_EQ(run(command).exit_code, 0);
  const nlohmann::json trace = nlohmann::json::parse(read_text(path("trace.json")));
  EXPECT_EQ(trace.at("traceEvents").at(0).at("ph"), "X");
  expect_failure(run(command), 7, {"trace.json"});
  std::vector<std::string> forced = command;
  forced.emplace_back("-f");
  EXPECT_EQ(run(forced).exit_code, 0);
}

TEST_F(ReportCommand, RefusesWhatIsNoRunLog) {
  expect_failure(run({"report", "missing.jsonl"}), 3, {"missing.jsonl"});
  expect_failure(run({"report", "model.safetensors"}), 4, {"model.safetensors:1"});
  expect_failure(run({"report", "run.jsonl", "--to", "svg"}), 2, {"--to", "html"});
  write_text(path("empty.jsonl"), "");
  expect_failure(run({"report", "empty.jsonl"}), 4, {"has no pass"});
  EXPECT_EQ(run({"report", "run.jsonl", "--json", "--to", "perfetto"}).exit_code, 2);
  EXPECT_EQ(run({"report", "run.jsonl", "--json", "--to", "html"}).exit_code, 2);
}

TEST_F(ReportCommand, RefusesARunThatWasCutOffAnywhereInOneLine) {
  const std::string whole = read_text(path("run.jsonl"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_text(path("cut.jsonl"), whole.substr(0, size));
    const RunResult result = run({"report", "cut.jsonl", "--to", "html"});
    ASSERT_EQ(result.exit_code, size + 1 == whole.size() ? 0 : 4) << size << result.err;
    ASSERT_EQ(line_count(result.err), size + 1 == whole.size() ? 0U : 1U) << size << result.err;
    size += size % 7;  // Some of them: each is a process.
  }
}

TEST_F(ReportCommand, WritesAPage) {
  EXPECT_EQ(run({"report", "run.jsonl", "--to", "html", "-o", "run.html"}).exit_code, 0);
  const std::string page = read_text(path("run.html"));
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("m.panda"));
  EXPECT_EQ(run({"report", "run.jsonl", "--to", "html"}).out, page);
}

TEST_F(CliTest, IoEngineThatDoesNotExistIsRefusedBeforeMeasuring) {
  const RunResult result = run({"hwreport"}, {{"TRASH_PANDA_IO", "mmap"}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("TRASH_PANDA_IO: there is no I/O engine \"mmap\"; engines are "
                                    "auto, io_uring and pread"));
}

}  // namespace
}  // namespace trash_panda::testing
