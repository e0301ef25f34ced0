#include "run_history.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "history_times.h"

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

std::string newer_records() {
  return R"({"type":"plan","pass_s":0.5,"bound_s":0.5,"limiting":"disk","stall_s":0.25,)"
         R"("first_pass_s":1,"blocks":[{"name":"b","tier":"disk","read_s":[-0.5,0.25],)"
         R"("compute_s":[0.25,0.5],"stall_s":0.25,"stalled_by":"disk"}]}
{"type":"memory","at_s":2.0,"booked_bytes":3,"base_bytes":1,"slot_bytes":2,"process_bytes":9}
{"type":"span","kind":"wait","cause":"copy","pass":2,"block":"a","begin_s":1.75,"end_s":1.875}
{"type":"stay","at_s":1.5,"block":"b"}
{"type":"drop","at_s":2.0,"block":"a"}
{"type":"lost","record_count":7}
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
  const RunHistory history = parsed(history_log() + newer_records());
  EXPECT_EQ(history.pack, "m.panda");
  EXPECT_EQ(history.io, "io_uring x4");
  ASSERT_EQ(history.blocks.size(), 2U);
  EXPECT_EQ(history.blocks[1].name, "b");
  EXPECT_EQ(history.block_count("disk"), 1U);
  ASSERT_EQ(history.memory.size(), 2U);
  EXPECT_EQ(history.memory[0].booked_bytes, 3'000'000U);
  EXPECT_EQ(history.memory[1].slot_bytes, 2U);
  EXPECT_EQ(history.memory[1].process_bytes, 9U);
  ASSERT_EQ(history.spans.size(), 7U);
  EXPECT_EQ(history.spans[0].size_bytes, 2'000'000U);
  EXPECT_EQ(history.spans[6].cause, "copy");
  EXPECT_EQ(history.passes.size(), 2U);
  ASSERT_EQ(history.homes.size(), 2U);
  EXPECT_EQ(history.homes[0].block, "b");
  EXPECT_TRUE(history.homes[0].stays);
  EXPECT_EQ(history.homes[1].block, "a");
  EXPECT_FALSE(history.homes[1].stays);
  EXPECT_EQ(history.lost_count, 7U);
  ASSERT_TRUE(history.plan);
  EXPECT_EQ(history.plan->limiting, "disk");
  ASSERT_EQ(history.plan->blocks.size(), 1U);
  EXPECT_EQ(history.plan->blocks[0].read_s, PlannedTimes::Range(-0.5, 0.25));
  EXPECT_EQ(history.plan->blocks[0].compute_s, PlannedTimes::Range(0.25, 0.5));
  EXPECT_FALSE(history.plan->blocks[0].copy_s);
  EXPECT_EQ(history.plan->blocks[0].stalled_by, "disk");
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
            "run.jsonl:1: blocks must be objects");
  EXPECT_EQ(refusal(R"({"type":"blocks","blocks":[{"name":"a"}]})"
                    "\n"),
            "run.jsonl:1: blocks: tier must be a string");
  const auto plan = [](const std::string& block) {
    return R"({"type":"plan","pass_s":1,"bound_s":1,"limiting":"disk","stall_s":0,)"
           R"("first_pass_s":1,"blocks":[{"name":"b",)" +
           block + "}]}\n";
  };
  for (const char* range : {"[1]", "[2,1]", "[0,1e99]", "7", R"(["a","b"])"}) {
    EXPECT_EQ(refusal(plan(R"("read_s":)" + std::string(range))),
              "run.jsonl:1: blocks: read_s must be two numbers of seconds, the smaller first");
  }
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

TEST(HistorySummary, HasPassesBlocksAndTheLongestStallsAfterTheFirst) {
  EXPECT_EQ(history_summary(parsed(history_log()), "run.jsonl"),
            "run.jsonl  m.panda  io_uring x4\n"
            "2 blocks, 1 of them read every pass; weights take 3.00 MB\n"
            "\n"
            "pass    time     read  reading  expanding  computing  elsewhere  stalled\n"
            "   1  500 ms  2.00 MB   500 ms          -     250 ms          -  250 ms (read)\n"
            "   2     1 s  2.00 MB        -     125 ms          -     500 ms  500 ms (read)\n"
            "\n"
            "block  tier  stored  reading  expanding  computing  stalled\n"
            "a      ram      0 B        -          -          -  125 ms (read)\n"
            "b      disk     0 B        -     125 ms          -  375 ms (read)\n"
            "\n"
            "waited for  in all  share  mostly for its\n"
            "b           375 ms   75 %  read\n"
            "a           125 ms   25 %  read\n");
}

TEST(HistorySummary, ComparesWithThePlanAndTellsOfWhatIsMissing) {
  const std::string text = history_summary(parsed(history_log() + newer_records()), "run.jsonl");
  EXPECT_THAT(text, HasSubstr("\ntypical pass 1 s, +100 % from the predicted 500 ms (bound 500 ms "
                              "by disk, 250 ms of it stalled)\n"));
  EXPECT_THAT(text, HasSubstr("\n7 records are missing: the log could not be written as fast\n"));
}

TEST(HistorySummary, LeavesOutTheMiddleOfManyPasses) {
  std::string log = history_log();
  for (int pass = 3; pass <= 40; ++pass) {
    log += R"({"type":"pass","pass":)" + std::to_string(pass) +
           R"(,"begin_s":3,"end_s":4,"read_bytes_ram":0,"read_bytes_disk":0})" + "\n";
  }
  const std::string text = history_summary(parsed(log), "run.jsonl");
  EXPECT_THAT(text, HasSubstr("\n  10      1 s "));
  EXPECT_THAT(text, HasSubstr("\n ...  20 more\n  31      1 s "));
}

TEST(HistoryTimes, WhatTheCallerMakesBeforeItComputesIsAStall) {
  const RunHistory history = parsed(R"({"type":"blocks","blocks":[{"name":"a","tier":"ram"}]}
{"type":"span","kind":"wait","cause":"read","pass":1,"block":"a","begin_s":0,"end_s":0.25}
{"type":"span","kind":"decode","pass":1,"block":"a","begin_s":0.25,"end_s":0.5}
{"type":"span","kind":"compute","pass":1,"block":"a","begin_s":0.5,"end_s":1}
{"type":"pass","pass":1,"begin_s":0,"end_s":1.125,"read_bytes_ram":1,"read_bytes_disk":2}
{"type":"span","kind":"decode","pass":2,"block":"a","begin_s":0.75,"end_s":1.25}
{"type":"span","kind":"wait","cause":"decode","pass":2,"block":"a","begin_s":1.125,"end_s":1.25}
{"type":"span","kind":"compute","pass":2,"block":"a","begin_s":1.25,"end_s":1.75}
{"type":"pass","pass":2,"begin_s":1.125,"end_s":2,"read_bytes_ram":1,"read_bytes_disk":2}
)");
  const HistoryTimes times = history_times(history);
  ASSERT_EQ(times.passes.size(), 2U);
  EXPECT_EQ(times.passes[0].stalls_s, (SecondsByName{{"decode", 0.25}, {"read", 0.25}}));
  EXPECT_EQ(times.passes[0].other_s(), 0.125);
  EXPECT_EQ(times.passes[1].stalls_s, (SecondsByName{{"decode", 0.125}})) << "the rest is hidden";
  EXPECT_EQ(times.passes[1].other_s(), 0.25);
  EXPECT_EQ(times.pass_s, 0.875) << "of the passes after the first";
  ASSERT_EQ(times.blocks.size(), 1U);
  EXPECT_EQ(times.blocks[0].stall_s, 0.125);
  EXPECT_EQ(times.blocks[0].stall_cause, "decode");
  EXPECT_EQ(seconds_of(times.blocks[0].busy_s, "decode"), 0.5);
}

TEST(HistoryTrace, HasALaneForEachKind) {
  const nlohmann::json trace = nlohmann::json::parse(history_trace(parsed(history_log())));
  const nlohmann::json& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 6U + 4U + 1U);
  EXPECT_EQ(events[0], nlohmann::json::parse(
                           R"({"name":"b","cat":"read","ph":"X","pid":1,"tid":1,"ts":250000,
                               "dur":500000,"args":{"pass":1,"bytes":2000000}})"));
  EXPECT_EQ(events[6], nlohmann::json::parse(R"({"name":"thread_name","ph":"M","pid":1,"tid":1,
                                                 "args":{"name":"read"}})"));
  EXPECT_EQ(events[9].at("args").at("name"), "compute");
  EXPECT_EQ(events[10].at("ph"), "C");
  EXPECT_EQ(events[10].at("args").at("bytes"), 3'000'000);
}

/// The data that a page comes with.
nlohmann::json page_data(const std::string& page) {
  const std::string start = R"(id="run">)";
  const std::size_t begin = page.find(start) + start.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(HistoryPage, IsOnePageThatAsksForNothing) {
  const std::string page = history_page(parsed(history_log() + newer_records()), "run.jsonl");
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* foreign : {"src=", "href=", "url(", "@import", "@RUN@", "@STYLE@", "@SCRIPT@",
                              "fetch(", "innerHTML"}) {
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
  }
  const nlohmann::json data = page_data(page);
  EXPECT_EQ(data.at("file"), "run.jsonl");
  EXPECT_EQ(data.at("pass_count"), 2);
  EXPECT_EQ(data.at("plan").at("blocks").at(0).at("read_s").at(0), -0.5);
  EXPECT_EQ(data.at("spans").size(), 7U);
  EXPECT_EQ(data.at("stalls").size(), 4U);
  EXPECT_EQ(data.at("stalls").at(1), nlohmann::json::parse(
                                         R"({"index":0,"pass":2,"begin":1.0,"end":1.125,
                                             "cause":"read"})"));
}

TEST(HistoryPage, NamesCannotEndTheScriptOrStandForItsParts) {
  const std::string name = R"(</script><script>alert(1)</script><!--@SCRIPT@@STYLE@)";
  const std::string log = R"({"type":"blocks","blocks":[{"name":")" + name +
                          R"(","tier":"disk"}]})"
                          "\n"
                          R"({"type":"pass","pass":1,"begin_s":0,"end_s":1,)"
                          R"("read_bytes_ram":0,"read_bytes_disk":0})"
                          "\n";
  const std::string page = history_page(parsed(log), name);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  EXPECT_EQ(page_data(page).at("blocks").at(0).at("name"), name);
  EXPECT_EQ(page_data(page).at("file"), name);
}

TEST(HistoryPage, ComesWithTheSpansOfSomePassesOfALongRun) {
  std::string log = R"({"type":"blocks","blocks":[{"name":"a","tier":"ram"}]})"
                    "\n";
  for (int pass = 1; pass <= 1200; ++pass) {
    const std::string number = std::to_string(pass);
    for (int span = 0; span < 30; ++span) {
      log += R"({"type":"span","kind":"compute","pass":)" + number +
             R"(,"block":"a","begin_s":1,"end_s":1})" + "\n";
    }
    log += R"({"type":"pass","pass":)" + number +
           R"(,"begin_s":1,"end_s":1,"read_bytes_ram":0,"read_bytes_disk":0})" + "\n";
  }
  const nlohmann::json data = page_data(history_page(parsed(log), "run.jsonl"));
  EXPECT_EQ(data.at("pass_count"), 1200);
  const nlohmann::json& passes = data.at("passes");
  ASSERT_EQ(passes.size(), 1000U);
  EXPECT_EQ(passes[0].at("pass"), 1);
  EXPECT_EQ(passes[1].at("pass"), 202);
  EXPECT_TRUE(passes[0].at("is_drawn"));
  EXPECT_TRUE(passes[999].at("is_drawn"));
  EXPECT_FALSE(passes[1].at("is_drawn"));
  EXPECT_LE(data.at("spans").size(), 20'100U);
}

}  // namespace
}  // namespace trash_panda::cli
