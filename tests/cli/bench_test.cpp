#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class BenchCommand : public CliTest {
 protected:
  BenchCommand() { std::filesystem::create_directory(path("data")); }

  [[nodiscard]] RunResult bench(std::vector<std::string> arguments,
                                const std::map<std::string, std::string>& environment = {}) const {
    arguments.insert(arguments.begin(), "bench");
    return run(arguments, environment);
  }
  [[nodiscard]] nlohmann::json document(
      std::vector<std::string> arguments,
      const std::map<std::string, std::string>& environment = {}) const {
    arguments.emplace_back("--json");
    const RunResult result = bench(std::move(arguments), environment);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
  /// Packs model.safetensors with all blocks in a tier.
  void repack(const std::string& tier, const std::string& compress = "none") const {
    const RunResult planned = run({"plan", "model.safetensors", "--probe", "never", "--assign",
                                   tier + "=*", "-o", "plan.toml", "-f"});
    ASSERT_EQ(planned.exit_code, 0) << planned.err;
    const RunResult packed = run({"repack", "model.safetensors", "--plan", "plan.toml", "-o",
                                  "pack", "--compress", compress, "--reserve", "0"});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }
};

void expect_spread(const nlohmann::json& spread) {
  EXPECT_GT(spread["median"], 0) << spread;
  EXPECT_LE(spread["min"], spread["median"]) << spread;
  EXPECT_LE(spread["median"], spread["max"]) << spread;
}

/// What lines are about, once each has figures that can be.
std::vector<std::string> checked_lines(const nlohmann::json& document) {
  std::vector<std::string> whats;
  for (const nlohmann::json& line : document["lines"]) {
    whats.push_back(line["what"]);
    EXPECT_NE(line["measured"]["name"], "");
    expect_spread(line["measured"]["bytes_per_s"]);
    EXPECT_EQ(line["limit"].is_null(), line["ratio"].is_null()) << line;
    if (!line["limit"].is_null()) {
      EXPECT_NE(line["limit"]["name"], "");
      expect_spread(line["limit"]["bytes_per_s"]);
      expect_spread(line["ratio"]);
      // A ratio of medians of one round is that round's.
      if (document["round_count"] == 1) {
        const double measured = line["measured"]["bytes_per_s"]["median"];
        const double limit = line["limit"]["bytes_per_s"]["median"];
        EXPECT_NEAR(line["ratio"]["median"], measured / limit, 1e-3) << line;
      }
    }
  }
  return whats;
}

TEST_F(BenchCommand, MeasuresTheProcessorBesideCopies) {
  const nlohmann::json one = document({"--what", "decode,expand", "--what", "ram", "--runs", "1"});
  std::vector<std::string> whats = checked_lines(one);
  // With one processor there are no copies of all threads to compare with.
  if (std::ranges::count(whats, "ram") == 2) {
    whats.erase(whats.begin());
  }
  EXPECT_THAT(whats, ElementsAre("ram", "expand", "decode", "decode")) << "in one order";
  EXPECT_EQ(one["round_count"], 1);
  EXPECT_THAT(one["left_out"], IsEmpty());
  EXPECT_TRUE(one["stream"].is_null());
  EXPECT_THAT(checked_lines(document({"--what", "expand", "--runs", "4"})), ElementsAre("expand"));
}

TEST_F(BenchCommand, ShowsATable) {
  const RunResult result = bench({"--what", "expand", "--runs", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(line_count(result.out), 2U) << result.out;
  EXPECT_THAT(result.out, AllOf(StartsWith("what    measured"), HasSubstr("\nexpand  fp8 to bf16"),
                                HasSubstr("ratio\n"), HasSubstr("..")));
}

TEST_F(BenchCommand, ReadsADriveAndLeavesNothing) {
  const nlohmann::json drive = document({"--what", "disk", "--path", "data", "--runs", "1"});
  // A drive without space for a test file, or one that can't be read so, is said and no failure.
  EXPECT_EQ(checked_lines(drive).size() + drive["left_out"].size(), 1U) << drive;
  EXPECT_EQ(drive["path"], "data");
  EXPECT_TRUE(std::filesystem::is_empty(path("data")));
}

TEST_F(BenchCommand, WithoutADriverLinksAreLeftOut) {
  const nlohmann::json links = document({"--what", "h2d", "--runs", "1"});
  const std::vector<std::string> whats = checked_lines(links);
  if (!whats.empty()) {
    GTEST_SKIP() << "there is a GPU";
  }
  ASSERT_THAT(links["left_out"], SizeIs(1));
  EXPECT_EQ(links["left_out"][0]["what"], "h2d");
  EXPECT_EQ(line_count(bench({"--what", "h2d"}).out), 1U);
  EXPECT_THAT(bench({"--what", "h2d"}).out, StartsWith("h2d is left out: "));
}

TEST_F(BenchCommand, MeasuresTheLinkOfEachGpu) {
  const nlohmann::json links =
      document({"--what", "h2d", "--runs", "2"}, {{"LD_LIBRARY_PATH", TP_FAKE_CUDA_DIR}});
  EXPECT_THAT(links["left_out"], IsEmpty()) << links;
  ASSERT_THAT(checked_lines(links), ElementsAre("h2d", "h2d", "h2d", "h2d"));
  EXPECT_EQ(links["lines"][0]["measured"]["name"], "GPU 0, pageable");
  EXPECT_EQ(links["lines"][0]["limit"]["name"], "GPU 0, pinned");
  EXPECT_EQ(links["lines"][3]["measured"]["name"], "GPU 1, pinned");
}

TEST_F(BenchCommand, StreamsAPackBesidePlainReadsOfTheSameBytes) {
  repack("disk");
  const nlohmann::json manifest = nlohmann::json::parse(read_text(path("pack/manifest.json")));
  std::uint64_t disk_bytes = 0;
  for (const nlohmann::json& extent : manifest["extents"]) {
    disk_bytes += extent["tier"] == "disk" ? extent["stored_bytes"].get<std::uint64_t>() : 0U;
  }
  ASSERT_GT(disk_bytes, kBlockCount * kBlockBytes);
  for (const char* engine : {"auto", "pread"}) {
    const nlohmann::json streamed =
        document({"pack", "--what", "stream", "--runs", "3"}, {{"TRASH_PANDA_IO", engine}});
    EXPECT_THAT(checked_lines(streamed), ElementsAre("stream"));
    const nlohmann::json& stream = streamed["stream"];
    EXPECT_EQ(stream["block_count"], kBlockCount);
    EXPECT_EQ(stream["weight_bytes"], kBlockCount * kBlockBytes);
    EXPECT_EQ(stream["disk_read_bytes"], disk_bytes);
    EXPECT_EQ(stream["plain_read_bytes"], disk_bytes);
    EXPECT_EQ(stream["ram_read_bytes"], 0);
    expect_spread(stream["pass_s"]);
    expect_spread(stream["plain_read_s"]);
    EXPECT_GT(stream["first_pass_s"], 0);
    EXPECT_LE(stream["first_wait_s"], stream["first_pass_s"]);
  }
  EXPECT_EQ(run({"verify", "pack"}).exit_code, 0);
}

TEST_F(BenchCommand, APackInRamReadsNothing) {
  repack("ram");
  const nlohmann::json streamed = document({"pack", "--what", "stream", "--runs", "2"});
  EXPECT_THAT(streamed["lines"], IsEmpty());
  EXPECT_EQ(streamed["stream"]["disk_read_bytes"], 0);
  EXPECT_GT(streamed["stream"]["ram_read_bytes"], kBlockCount * kBlockBytes);
  expect_spread(streamed["stream"]["pass_s"]);
  EXPECT_TRUE(streamed["stream"]["plain_read_s"].is_null());
  EXPECT_THAT(bench({"pack", "--what", "stream", "--runs", "1"}).out,
              HasSubstr("stream is left out: nothing is read or decoded"));
}

TEST_F(BenchCommand, ACodedPackInRamIsBesideMemcpy) {
  SafetensorsBuilder builder;
  for (int i = 0; i < 4; ++i) {
    // Of one exponent, so that the code is worth it.
    builder.add(fmt::format("layers.{}.up.weight", i), format::Dtype::kBf16, {512, 1024},
                std::string(512UL * 1024 * 2, '\x3f'));
  }
  builder.write(path("model.safetensors"));
  repack("ram", "exponent");
  const nlohmann::json streamed = document({"pack", "--what", "stream", "--runs", "2"});
  ASSERT_THAT(checked_lines(streamed), ElementsAre("stream"));
  EXPECT_THAT(streamed["lines"][0]["limit"]["name"].get<std::string>(), StartsWith("memcpy"));
  EXPECT_EQ(streamed["stream"]["disk_read_bytes"], 0);
  EXPECT_EQ(streamed["stream"]["weight_bytes"], 4 * 512 * 1024 * 2);
}

TEST_F(BenchCommand, WritesTheDocument) {
  const std::vector<std::string> words = {"--what", "expand",        "--runs",
                                          "1",      "--export-json", "b.json"};
  const RunResult first = bench(words);
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, StartsWith("what ")) << "the table is shown all the same";
  const std::string written = read_text(path("b.json"));
  EXPECT_EQ(nlohmann::json::parse(written)["schema"], "trash-panda/bench/1");
  expect_failure(bench(words), 7, {"b.json", "-f"});
  EXPECT_EQ(read_text(path("b.json")), written);
  std::vector<std::string> replacing = words;
  replacing.insert(replacing.end(), {"--force", "--json"});
  const RunResult again = bench(replacing);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(read_text(path("b.json")), again.out);
}

TEST_F(BenchCommand, RefusesWhatMakesNoSense) {
  expect_failure(bench({"--what", "disk,tape"}), 2,
                 {"--what", "'tape'", "disk, h2d, ram, expand, decode, stream"});
  expect_failure(bench({"--what", "ram,"}), 2, {"--what", "''"});
  expect_failure(bench({"--what", "stream"}), 2, {"--what stream", "PACK"});
  expect_failure(bench({"pack", "--what", "ram"}), 2, {"PACK", "--path"});
  for (const char* runs : {"0", "1001", "-1", "many"}) {
    expect_failure(bench({"--runs", runs, "--what", "expand"}), 2, {"--runs"});
  }
  expect_failure(bench({"--path", "absent"}), 3, {"--path", "absent"});
  expect_failure(bench({"absent"}), 3, {"absent"});
  expect_failure(bench({"model.safetensors"}), 3, {"model.safetensors"});
  expect_failure(bench({"--export-json", ""}), 2, {"--export-json"});
  expect_failure(bench({"--export-json", "no/b.json"}), 7, {"no"});
  expect_failure(bench({"--what", "disk"}, {{"TRASH_PANDA_IO", "mmap"}}), 2, {"TRASH_PANDA_IO"});
}

TEST_F(BenchCommand, ADamagedPackIsSaidAtOnce) {
  repack("disk");
  std::filesystem::resize_file(path("pack/disk-00001.safetensors"), 4096);
  expect_failure(bench({"pack"}), 4, {"disk-00001.safetensors"});
}

TEST_F(BenchCommand, InterruptedItLeavesNothing) {
  for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    RunningProgram program({"bench", "--what", "disk,ram", "--runs", "1000", "--path", "data",
                            "--export-json", "b.json"},
                           {.folder = folder_.path(), .environment = {}, .program = {}});
    std::this_thread::sleep_for(std::chrono::seconds(1));
    program.send(signal);
    const RunResult result = program.wait();
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_TRUE(std::filesystem::is_empty(path("data")));
    EXPECT_THAT(names(), ElementsAre("data", "model.safetensors"));
  }
}

}  // namespace
}  // namespace trash_panda::testing
