#include "run_recorder.h"

#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/support/temp_dir.h"
#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Tier;
using nlohmann::json;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using trash_panda::testing::must;
using trash_panda::testing::read_text;
using trash_panda::testing::stream_options;
using trash_panda::testing::StreamPack;
using trash_panda::testing::TempDir;

std::vector<json> records_of(const std::filesystem::path& path) {
  std::vector<json> records;
  std::istringstream lines(read_text(path));
  std::string line;
  while (std::getline(lines, line)) {
    records.push_back(json::parse(line));
  }
  return records;
}

std::vector<json> of_type(const std::vector<json>& records, std::string_view type) {
  std::vector<json> found;
  for (const json& record : records) {
    if (record.at("type") == type) {
      found.push_back(record);
    }
  }
  return found;
}

class RunLogTest : public ::testing::Test {
 protected:
  /// Streams as `use` says, and returns what was written.
  template <class Use>
  std::vector<json> record(const StreamPack& pack, Use use) {
    StreamOptions options = stream_options();
    options.run_log = folder_ / "run.jsonl";
    options.compute_dtype = format::Dtype::kBf16;
    {
      Streamer streamer = must(Streamer::open(pack.path(), options));
      use(streamer);
    }
    return records_of(options.run_log);
  }

  static void run_passes(Streamer& streamer, int count) {
    for (int pass = 0; pass < count; ++pass) {
      for (std::size_t block = 0; block < streamer.block_count(); ++block) {
        must(streamer.acquire(block));
      }
    }
  }

  TempDir folder_;
};

TEST_F(RunLogTest, BeginsWithTheRunItsBlocksAndItsMemory) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kRam}});
  const std::vector<json> records = record(pack, [](Streamer&) {});
  ASSERT_EQ(records.size(), 3U) << "the pack's plan predicts nothing";
  EXPECT_EQ(records[0].at("type"), "run");
  EXPECT_EQ(records[0].at("schema"), "trash-panda/run-log/1");
  EXPECT_EQ(records[0].at("pack"), pack.path().string());
  EXPECT_THAT(records[0].at("io").get<std::string>(), HasSubstr(" x4"));
  EXPECT_EQ(records[1].at("blocks"),
            json::array({{{"name", "layers.0"},
                          {"tier", "disk"},
                          {"stored_bytes", pack.extent("layers.0").stored_bytes}},
                         {{"name", "layers.1"},
                          {"tier", "ram"},
                          {"stored_bytes", pack.extent("layers.1").stored_bytes}}}));
  EXPECT_EQ(records[0].at("device"), "CPU");
  const json& memory = records[2];
  EXPECT_EQ(memory.at("type"), "memory");
  EXPECT_GT(memory.at("slot_bytes"), 0);
  EXPECT_GE(memory.at("ram_tier_bytes"), pack.stored_bytes(Tier::kRam));
  EXPECT_EQ(memory.at("booked_bytes").get<std::uint64_t>(),
            memory.at("base_bytes").get<std::uint64_t>() +
                memory.at("ram_tier_bytes").get<std::uint64_t>() +
                memory.at("slot_bytes").get<std::uint64_t>() +
                memory.at("expanded_bytes").get<std::uint64_t>());
  EXPECT_GT(memory.at("process_bytes"), memory.at("booked_bytes"));
}

TEST_F(RunLogTest, EachSpanHasItsBlockItsTierAndItsBytes) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kRam}});
  const std::vector<json> records =
      record(pack, [](Streamer& streamer) { run_passes(streamer, 2); });
  std::map<std::string, std::map<std::string, std::uint64_t>> bytes;  // By kind, then block.
  for (const json& span : of_type(records, "span")) {
    EXPECT_EQ(span.at("tier"), span.at("block") == "layers.0" ? "disk" : "ram");
    EXPECT_EQ(span.contains("cause"), span.at("kind") == "wait");
    bytes[span.at("kind")][span.at("block")] = span.at("bytes");
  }
  for (const std::string name : {"layers.0", "layers.1"}) {
    std::uint64_t tensor_bytes = 0;
    for (const auto& [tensor, expected] : pack.expected(name + ".", format::Dtype::kBf16)) {
      tensor_bytes += expected.bytes.size();
    }
    EXPECT_EQ(bytes["read"][name], pack.extent(name).stored_bytes);
    EXPECT_EQ(bytes["wait"][name], pack.extent(name).stored_bytes);
    EXPECT_EQ(bytes["compute"][name], tensor_bytes);
    EXPECT_GT(bytes["expand"][name], 0U);
  }
  EXPECT_EQ(bytes.size(), 4U) << "nothing is decoded or copied";
}

TEST_F(RunLogTest, MemoryIsWrittenAfterEachPass) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kRam}});
  const std::vector<json> records =
      record(pack, [](Streamer& streamer) { run_passes(streamer, 3); });
  const std::vector<json> memory = of_type(records, "memory");
  ASSERT_EQ(memory.size(), 4U);
  EXPECT_GE(memory[3].at("at_s"), of_type(records, "pass")[2].at("end_s"));
  EXPECT_FALSE(memory[3].contains("text")) << "of all models, once";
}

TEST_F(RunLogTest, BlockThatGivesItsMemoryBackIsWritten) {
  const StreamPack pack({.tiers = {Tier::kRam, Tier::kRam}});
  StreamOptions options = stream_options();
  options.run_log = folder_ / "run.jsonl";
  options.ram_memory = RamMemory::kAsNeeded;
  {
    Streamer streamer = must(Streamer::open(pack.path(), options));
    run_passes(streamer, 1);
    EXPECT_GT(streamer.drop(1), 0U);
    EXPECT_EQ(streamer.drop(1), 0U);
  }
  const std::vector<json> drops = of_type(records_of(options.run_log), "drop");
  ASSERT_EQ(drops.size(), 1U);
  EXPECT_EQ(drops[0].at("block"), "layers.1");
}

TEST_F(RunLogTest, BlocksThatArePromotedAndDemotedAreWritten) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kDisk, Tier::kDisk}});
  StreamOptions options = stream_options();
  options.run_log = folder_ / "run.jsonl";
  options.lookahead_bytes = 1;
  {
    Streamer streamer = must(Streamer::open(pack.path(), options));
    run_passes(streamer, 1);
    EXPECT_GT(streamer.promote(), 0U);
    run_passes(streamer, 3);
    EXPECT_GT(streamer.drop(1), 0U);
    run_passes(streamer, 1);
  }
  const std::vector<json> records = records_of(options.run_log);
  std::set<std::string> staying;
  for (const json& stay : of_type(records, "stay")) {
    staying.insert(stay.at("block"));
  }
  EXPECT_THAT(staying, ::testing::ElementsAre("layers.0", "layers.1", "layers.2"));
  const std::vector<json> drops = of_type(records, "drop");
  ASSERT_EQ(drops.size(), 1U);
  EXPECT_EQ(drops[0].at("block"), "layers.1");
}

TEST_F(RunLogTest, HasEveryPassEveryBlockAndEveryRead) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kRam, Tier::kDisk}});
  const std::vector<json> records =
      record(pack, [](Streamer& streamer) { run_passes(streamer, 3); });
  const std::vector<json> passes = of_type(records, "pass");
  ASSERT_EQ(passes.size(), 3U);
  const std::uint64_t disk_bytes = pack.stored_bytes(Tier::kDisk);
  for (std::size_t at = 0; at < 3; ++at) {
    EXPECT_EQ(passes[at].at("pass"), at + 1);
    EXPECT_LE(passes[at].at("begin_s"), passes[at].at("end_s"));
    EXPECT_EQ(passes[at].at("read_bytes_disk"), disk_bytes);
    EXPECT_EQ(passes[at].at("read_bytes_ram"), at == 0 ? pack.stored_bytes(Tier::kRam) : 0);
  }
  EXPECT_EQ(of_type(records, "block").size(), 9U);
  std::map<std::string, std::vector<std::string>> read;
  for (const json& span : of_type(records, "span")) {
    EXPECT_LE(span.at("begin_s"), span.at("end_s"));
    if (span.at("kind") == "read") {
      read[span.at("block")].push_back(std::to_string(span.at("pass").get<int>()));
      EXPECT_EQ(span.at("bytes"), pack.extent(span.at("block").get<std::string>()).stored_bytes);
    }
  }
  EXPECT_THAT(read["layers.0"], ElementsAre("1", "2", "3"));
  EXPECT_THAT(read["layers.1"], ElementsAre("1"));
}

TEST_F(RunLogTest, SpansOfABlockFollowEachOther) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kDisk}});
  const std::vector<json> records =
      record(pack, [](Streamer& streamer) { run_passes(streamer, 1); });
  std::vector<std::string> kinds;
  double end_s = 0;
  for (const json& span : of_type(records, "span")) {
    if (span.at("block") == "layers.1") {
      kinds.push_back(span.at("kind"));
      EXPECT_GE(span.at("end_s").get<double>(), end_s);
      end_s = span.at("end_s");
    }
  }
  // It is expanded ahead, which is then waited for, if it has come in by the time that block 0 is
  // ready.
  EXPECT_THAT(kinds, AnyOf(ElementsAre("read", "wait", "expand", "compute"),
                           ElementsAre("read", "expand", "wait", "compute")));
}

TEST_F(RunLogTest, BlockUsedTwiceInAPassHasOneRecordWithBothTimes) {
  const StreamPack pack({.tiers = {Tier::kRam, Tier::kRam}});
  const std::vector<json> records = record(pack, [](Streamer& streamer) {
    for (const std::size_t block : {0U, 1U, 1U}) {
      must(streamer.acquire(block));
    }
  });
  double compute_s = 0;
  for (const json& span : of_type(records, "span")) {
    if (span.at("kind") == "compute" && span.at("block") == "layers.1") {
      compute_s += span.at("end_s").get<double>() - span.at("begin_s").get<double>();
    }
  }
  const std::vector<json> blocks = of_type(records, "block");
  ASSERT_EQ(blocks.size(), 2U);
  EXPECT_EQ(blocks[1].at("name"), "layers.1");
  EXPECT_NEAR(blocks[1].at("compute_s"), compute_s, 5e-6);
}

TEST_F(RunLogTest, PassThatEndsEarlyIsWrittenToo) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kDisk, Tier::kDisk}});
  const std::vector<json> records = record(pack, [](Streamer& streamer) {
    must(streamer.acquire(0));
    must(streamer.acquire(1));
    must(streamer.acquire(0));
  });
  const std::vector<json> passes = of_type(records, "pass");
  ASSERT_EQ(passes.size(), 2U);
  EXPECT_EQ(passes[0].at("read_bytes_disk"), 2 * pack.extent("layers.0").stored_bytes);
  EXPECT_EQ(passes[1].at("read_bytes_disk"), pack.extent("layers.0").stored_bytes);
}

TEST_F(RunLogTest, CanBeEndedWhileStreamingGoesOn) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kDisk}});
  StreamOptions options = stream_options();
  options.run_log = folder_ / "run.jsonl";
  Streamer streamer = must(Streamer::open(pack.path(), options));
  run_passes(streamer, 1);
  must(streamer.acquire(0));
  streamer.end_log();
  const std::string text = read_text(options.run_log);
  EXPECT_EQ(of_type(records_of(options.run_log), "pass").size(), 2U) << "as far as it came";
  streamer.end_log();
  run_passes(streamer, 2);
  EXPECT_EQ(read_text(options.run_log), text);
}

/// A run without a streamer, of blocks a, b and c.
RunStart start_of(std::filesystem::path pack = "m.panda") {
  RunStart start;
  start.pack = std::move(pack);
  start.io = "pread x1";
  start.device = "CPU";
  start.blocks = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
  return start;
}

TEST_F(RunLogTest, ReadsDoNotOverlapNorDoCopies) {
  for (const SpanKind kind : {SpanKind::kRead, SpanKind::kCopy}) {
    const auto recorder =
        must(RunRecorder::create(folder_ / "run.jsonl", start_of(), silent_logger()));
    const auto at = [start = RunClock::now()](int ms) {
      return start + std::chrono::milliseconds(ms);
    };
    const auto add = [&](std::size_t block, int begin_ms, int end_ms) {
      recorder->add(RunSpan{.kind = kind,
                            .pass = 1,
                            .block = block,
                            .begin = at(begin_ms),
                            .end = at(end_ms),
                            .size_bytes = 5});
    };
    add(0, 1000, 3000);
    add(1, 1000, 4000);
    add(2, 6000, 7000);
    recorder->end_pass({});
  }
  const std::vector<json> spans = of_type(records_of(folder_ / "run.jsonl"), "span");
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[1].at("begin_s"), spans[0].at("end_s")) << "queued behind the one before";
  EXPECT_GT(spans[2].at("begin_s"), spans[1].at("end_s"));
}

TEST_F(RunLogTest, PredictionOfThePlanIsWrittenBlockByBlock) {
  RunStart start = start_of();
  start.plan.emplace();
  plan::PlannedBlock block = {.name = "a",
                              .tier = Tier::kDisk,
                              .stored_bytes = 1'000'000'000,
                              .extent_bytes = 1'000'000'000,
                              .compute_s = 0.25};
  start.plan->blocks = {block};
  start.plan->rates.disk_bytes_per_s = 2'000'000'000;
  start.plan->predicted = {.pass_s = 0.5, .bound_s = 0.5, .limiting = "disk", .stall_s = 0.25};
  must(RunRecorder::create(folder_ / "run.jsonl", start, silent_logger()));
  const std::vector<json> plans = of_type(records_of(folder_ / "run.jsonl"), "plan");
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].at("pass_s"), 0.5);
  EXPECT_EQ(plans[0].at("limiting"), "disk");
  const json& planned = plans[0].at("blocks").at(0);
  EXPECT_EQ(planned.at("name"), "a");
  EXPECT_EQ(planned.at("read_s"), json::array({0.0, 0.5})) << "from the start of the pass";
  EXPECT_EQ(planned.at("compute_s"), json::array({0.5, 0.75}));
  EXPECT_EQ(planned.at("stalled_by"), "disk");
  EXPECT_FALSE(planned.contains("copy_s"));
}

TEST_F(RunLogTest, PlanWithoutAPredictionIsNotWritten) {
  RunStart start = start_of();
  start.plan.emplace();
  must(RunRecorder::create(folder_ / "run.jsonl", start, silent_logger()));
  EXPECT_EQ(of_type(records_of(folder_ / "run.jsonl"), "plan").size(), 0U);
}

TEST_F(RunLogTest, NameThatIsNoUtf8StaysOneLineOfJson) {
  RunStart start = start_of("/packs/\xff\n\".panda");
  start.blocks[0].name = "\"</script>\n\xff";
  {
    const auto recorder = must(RunRecorder::create(folder_ / "run.jsonl", start, silent_logger()));
    recorder->add(RunSpan{.pass = 1, .block = 0});
    recorder->end_pass({.pass = 1});
  }
  const std::vector<json> spans = of_type(records_of(folder_ / "run.jsonl"), "span");
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].at("block"), "\"</script>\n\xef\xbf\xbd");
}

TEST_F(RunLogTest, PlaceThatCannotBeWrittenIsAnError) {
  const StreamPack pack({.tiers = {Tier::kDisk}});
  StreamOptions options = stream_options();
  options.run_log = folder_ / "missing" / "run.jsonl";
  const Result<Streamer> refused = Streamer::open(pack.path(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kOutput);
  EXPECT_EQ(refused.error().message(), "can't write the run log " + options.run_log.string());
}

TEST_F(RunLogTest, FullDiskEndsTheLogWithOneWarningAndNothingElse) {
  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "/dev/full is missing";
  }
  const StreamPack pack({.tiers = {Tier::kDisk}});
  std::vector<std::string> warnings;
  StreamOptions options = stream_options();
  options.run_log = "/dev/full";
  options.log = [&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning && line.find("run log") != std::string_view::npos) {
      warnings.emplace_back(line);
    }
  };
  Streamer streamer = must(Streamer::open(pack.path(), options));
  run_passes(streamer, 3);
  EXPECT_THAT(warnings,
              ElementsAre("the run log /dev/full can't be written any more: it ends here"));
}

}  // namespace
}  // namespace trash_panda::runtime
