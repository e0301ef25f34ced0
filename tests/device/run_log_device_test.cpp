// What the run log says of streaming to a GPU.

#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/support/temp_dir.h"
#include "device.h"
#include "device/support/fake_gpu.h"
#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Tier;
using nlohmann::json;
using ::testing::ElementsAre;
using testing::fake;
using testing::GpuUser;
using testing::must;
using testing::StreamPack;

class RunLogOnDevice : public testing::FakeGpuTest {
 protected:
  /// Spans of three passes, by kind.
  static std::map<std::string, std::vector<json>> spans_of(
      const StreamPack& pack, VerifyMode verify = VerifyMode::kHeaders) {
    const testing::TempDir folder;
    StreamOptions options = testing::stream_options();
    options.device = open_gpu();
    options.device_slot_count = 2;
    options.compute_dtype = format::Dtype::kBf16;
    options.verify = verify;
    options.run_log = folder / "run.jsonl";
    GpuUser user;
    const StreamHandle stream = user.make_stream();
    std::string seen;
    {
      Streamer streamer = must(Streamer::open(pack.path(), options));
      for (std::size_t use = 0; use < 3 * streamer.block_count(); ++use) {
        const BlockLease lease = must(streamer.acquire(use % streamer.block_count(), stream));
        const TensorView& tensor = lease.tensors().front();
        user.read(stream, {tensor.data, tensor.size_bytes}, &seen);
      }
    }
    user.synchronize(stream);
    std::map<std::string, std::vector<json>> spans;
    std::istringstream lines(testing::read_text(options.run_log));
    for (std::string line; std::getline(lines, line);) {
      const json record = json::parse(line);
      if (record.at("type") == "span") {
        spans[record.at("kind")].push_back(record);
      } else if (record.at("type") == "memory") {
        EXPECT_GT(record.at("device_bytes"), 0);
      }
    }
    return spans;
  }
};

TEST_F(RunLogOnDevice, HasEachCopyWithItsBlockItsTierAndItsBytes) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kGpu, Tier::kRam, Tier::kDisk}});
  for (const fake_cuda::Delays delays : {fake_cuda::Delays::kNone, fake_cuda::Delays::kRandom}) {
    fake().reset({.delays = delays});
    std::map<std::string, std::vector<json>> spans = spans_of(pack);
    std::map<std::string, std::vector<int>> passes;
    double last_end_s = 0;
    for (const json& copy : spans["copy"]) {
      const std::string block = copy.at("block");
      passes[block].push_back(copy.at("pass"));
      EXPECT_EQ(copy.at("tier"), block == "layers.1"   ? "gpu"
                                 : block == "layers.2" ? "ram"
                                                       : "disk");
      EXPECT_EQ(copy.at("bytes"), pack.extent(block).stored_bytes);
      EXPECT_LE(copy.at("begin_s"), copy.at("end_s"));
      EXPECT_GE(copy.at("begin_s"), last_end_s) << "one after the other";
      last_end_s = copy.at("end_s");
    }
    EXPECT_THAT(passes["layers.0"], ElementsAre(1, 2, 3));
    EXPECT_THAT(passes["layers.1"], ElementsAre(1)) << "it stays";
    EXPECT_THAT(passes["layers.2"], ElementsAre(1, 2, 3));
    EXPECT_THAT(passes["layers.3"], ElementsAre(1, 2, 3));
  }
}

TEST_F(RunLogOnDevice, CopyBeginsWhenItsBlockHasBeenRead) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kDisk, Tier::kDisk}});
  std::map<std::string, std::vector<json>> spans = spans_of(pack);
  ASSERT_EQ(spans["copy"].size(), 9U);
  for (const json& copy : spans["copy"]) {
    const auto read = std::ranges::find_if(spans["read"], [&](const json& span) {
      return span.at("block") == copy.at("block") && span.at("pass") == copy.at("pass");
    });
    ASSERT_NE(read, spans["read"].end());
    EXPECT_GE(copy.at("begin_s"), read->at("end_s"));
  }
}

TEST_F(RunLogOnDevice, WaitsSayWhatTheyAreFor) {
  const StreamPack pack({.tiers = {Tier::kDisk, Tier::kDisk, Tier::kDisk}});
  // What is verified is not copied ahead.
  const std::map<std::string, std::vector<json>> spans = spans_of(pack, VerifyMode::kFull);
  std::map<std::string, int> causes;
  for (const json& wait : spans.at("wait")) {
    ++causes[wait.at("cause")];
  }
  EXPECT_THAT(causes, ElementsAre(std::pair("copy", 9), std::pair("read", 9)));
}

}  // namespace
}  // namespace trash_panda::runtime
