#include "run_recorder.h"

#include <filesystem>
#include <map>
#include <sstream>
#include <string>
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
  ASSERT_EQ(records.size(), 3U);
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
  EXPECT_EQ(records[2].at("type"), "memory");
  EXPECT_GT(records[2].at("booked_bytes"), 0);
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

TEST_F(RunLogTest, ReadsDoNotOverlap) {
  TempDir folder;
  RunRecorder recorder = must(RunRecorder::create(folder / "run.jsonl", silent_logger()));
  const auto at = [start = RunClock::now()](int ms) {
    return start + std::chrono::milliseconds(ms);
  };
  recorder.add({SpanKind::kRead, 1, "a", at(1000), at(3000), 5});
  recorder.add({SpanKind::kRead, 1, "b", at(1000), at(4000), 5});
  recorder.add({SpanKind::kRead, 1, "c", at(6000), at(7000), 5});
  recorder.end_pass({});
  const std::vector<json> spans = of_type(records_of(folder / "run.jsonl"), "span");
  EXPECT_EQ(spans[1].at("begin_s"), spans[0].at("end_s")) << "queued behind the one before";
  EXPECT_GT(spans[2].at("begin_s"), spans[1].at("end_s"));
}

TEST_F(RunLogTest, NameThatIsNoUtf8StaysOneLineOfJson) {
  TempDir folder;
  RunRecorder recorder = must(RunRecorder::create(folder / "run.jsonl", silent_logger()));
  recorder.add_run("/packs/\xff\n\".panda", "pread x1");
  recorder.end_pass({});
  EXPECT_EQ(records_of(folder / "run.jsonl").size(), 2U);
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
