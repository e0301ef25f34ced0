#include "run_history.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trash_panda::cli {
namespace {

using ::testing::HasSubstr;

/// Two passes of two blocks, the second of which waits.
std::string history_log() {
  return R"({"type":"run","schema":"trash-panda/run-log/1","pack":"m.panda","io":"io_uring x4"}
{"type":"blocks","blocks":[{"name":"a","tier":"ram"},{"name":"b","tier":"disk"}]}
{"type":"memory","at_s":0.1,"booked_bytes":3000000,"text":"plenty"}
{"type":"span","kind":"read","pass":1,"block":"b","begin_s":0.25,"end_s":0.75,"bytes":2000000}
{"type":"span","kind":"wait","pass":1,"block":"b","begin_s":0.5,"end_s":0.75}
{"type":"span","kind":"compute","pass":1,"block":"b","begin_s":0.75,"end_s":1.0}
{"type":"block","pass":1,"name":"b","compute_s":0.25}
{"type":"pass","pass":1,"begin_s":0.5,"end_s":1.0,"read_bytes_ram":1,"read_bytes_disk":2000000}
{"type":"from the future","what":[1,2]}
{"type":"span","kind":"wait","pass":2,"block":"a","begin_s":1.0,"end_s":1.125}
{"type":"span","kind":"wait","pass":2,"block":"b","begin_s":1.25,"end_s":1.625}
{"type":"span","kind":"expand","pass":2,"block":"b","begin_s":1.625,"end_s":1.75,"bytes":18}
{"type":"pass","pass":2,"begin_s":1.0,"end_s":2.0,"read_bytes_ram":0,"read_bytes_disk":2000000}
)";
}

RunHistory parsed(const std::string& text) {
  const auto history = parse_run_history(text, "run.jsonl");
  EXPECT_TRUE(history) << history.error().to_string();
  return *history;
}

std::string refusal(const std::string& text) {
  const auto history = parse_run_history(text, "run.jsonl");
  EXPECT_FALSE(history);
  return history ? "read" : history.error().to_string();
}

TEST(ParseRunHistory, ReadsAllThatItKnows) {
  const RunHistory history = parsed(history_log());
  EXPECT_EQ(history.pack, "m.panda");
  EXPECT_EQ(history.io, "io_uring x4");
  EXPECT_EQ(history.block_count, 2U);
  EXPECT_EQ(history.disk_block_count, 1U);
  EXPECT_EQ(history.booked_bytes, 3'000'000U);
  ASSERT_EQ(history.spans.size(), 6U);
  EXPECT_EQ(history.spans[0].size_bytes, 2'000'000U);
  EXPECT_EQ(history.passes.size(), 2U);
}

TEST(ParseRunHistory, NamesLineAndCauseOfWhatIsNoRecord) {
  const std::string good = R"({"type":"run","pack":"p","io":"i"})";
  EXPECT_EQ(refusal(good + "\n[]\n"), "run.jsonl:2: not a JSON object");
  EXPECT_EQ(refusal("{}\n"), "run.jsonl:1: type must be a string");
  EXPECT_EQ(refusal(R"({"type":"run","pack":1,"io":"i"})"
                    "\n"),
            "run.jsonl:1: pack must be a string");
  EXPECT_EQ(refusal(R"({"type":"blocks","blocks":[7]})"
                    "\n"),
            "run.jsonl:1: blocks must be objects with a tier");
  EXPECT_EQ(refusal(R"({"type":"span","kind":"read","pass":-1,"block":"b","begin_s":0,"end_s":0})"
                    "\n"),
            "run.jsonl:1: pass must be a whole number");
  EXPECT_EQ(refusal(R"({"type":"span","kind":"read","pass":1,"block":"b","begin_s":2,"end_s":1})"
                    "\n"),
            "run.jsonl:1: end_s is before begin_s");
  EXPECT_EQ(refusal(R"({"type":"span","kind":"read","pass":1,"block":"b","begin_s":0,"end_s":1e99})"
                    "\n"),
            "run.jsonl:1: end_s must be a number of seconds");
}

TEST(ParseRunHistory, LineThatWasCutOffSaysSo) {
  EXPECT_THAT(refusal(history_log() + R"({"type":"pa)"), HasSubstr("the last line has no end"));
}

TEST(ParseRunHistory, LogWithoutAPassIsRefused) {
  EXPECT_EQ(refusal(R"({"type":"run","pack":"p","io":"i"})"
                    "\n"),
            "run.jsonl has no pass; TRASH_PANDA_LOG=FILE, set before loading, writes a log of the "
            "passes");
}

TEST(HistorySummary, HasEachPassAndTheLongestWaitsAfterTheFirst) {
  EXPECT_EQ(history_summary(parsed(history_log()), "run.jsonl"),
            "run.jsonl  m.panda  io_uring x4\n"
            "2 blocks, 1 of them read every pass; weights take 3.00 MB\n"
            "\n"
            "pass    time     read  reading  waiting  expanding  computing\n"
            "   1  500 ms  2.00 MB   500 ms   250 ms       0 ms     250 ms\n"
            "   2     1 s  2.00 MB     0 ms   500 ms     125 ms       0 ms\n"
            "\n"
            "waited for  in all  share\n"
            "b           375 ms   75 %\n"
            "a           125 ms   25 %\n");
}

TEST(HistoryTrace, HasALaneForEachKind) {
  const nlohmann::json trace = nlohmann::json::parse(history_trace(parsed(history_log())));
  const nlohmann::json& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 6U + 4U);
  EXPECT_EQ(events[0], nlohmann::json::parse(
                           R"({"name":"b","cat":"read","ph":"X","pid":1,"tid":1,"ts":250000,
                               "dur":500000,"args":{"pass":1,"bytes":2000000}})"));
  EXPECT_EQ(events[6], nlohmann::json::parse(R"({"name":"thread_name","ph":"M","pid":1,"tid":1,
                                                 "args":{"name":"read"}})"));
  EXPECT_EQ(events[9].at("args").at("name"), "compute");
}

}  // namespace
}  // namespace trash_panda::cli
