// How long passes take on a GPU with a link and a disk of given rates, in simulated time: the
// runtime against what no schedule can beat, and against what plans predict.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/simulator.h"

#include "device.h"
#include "device/support/fake_gpu.h"
#include "device/support/slow_disk.h"
#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Tier;
using testing::fake;
using testing::GpuUser;
using testing::must;
using testing::SlowDisk;
using testing::StreamPack;

/// 12 GB/s and 2 GB/s, for blocks that are ten thousand times smaller than a model's.
constexpr std::uint64_t kLinkBytesPerS = 1'200'000;
constexpr std::uint64_t kDiskBytesPerS = 200'000;

struct PassCase {
  std::string name;
  std::string tiers;  ///< A letter a block: g, r or d.
  double compute_s;   ///< Of each block.
  std::size_t device_slot_count;
  std::uint64_t lookahead_blocks;

  friend void PrintTo(const PassCase& tested, std::ostream* out) { *out << tested.name; }
};

class PassTime : public testing::FakeGpuTest, public ::testing::WithParamInterface<PassCase> {
 protected:
  static std::vector<Tier> tiers() {
    std::vector<Tier> tiers;
    for (const char letter : GetParam().tiers) {
      tiers.push_back(letter == 'g' ? Tier::kGpu : letter == 'r' ? Tier::kRam : Tier::kDisk);
    }
    return tiers;
  }

  /// Seconds of a pass in the steady state.
  static double measure(const StreamPack& pack) {
    fake().reset({.delays = fake_cuda::Delays::kSimulated,
                  .link_bytes_per_s = kLinkBytesPerS,
                  .disk_bytes_per_s = kDiskBytesPerS});
    const std::shared_ptr<Device> device = open_gpu();
    GpuUser user;
    const StreamHandle stream = user.make_stream();
    StreamOptions options;
    options.device = device;
    options.tiers = tiers();
    options.io = IoBackend::kPread;
    options.device_slot_count = GetParam().device_slot_count;
    options.lookahead_bytes = GetParam().lookahead_blocks * pack.extent("layers.0").stored_bytes;
    const SlowDisk slow_disk;
    Streamer streamer = must(Streamer::open(pack.path(), options));
    constexpr int kWarmPasses = 3;
    constexpr int kPasses = 4;
    std::chrono::nanoseconds begin{0};
    std::string seen;
    for (int pass = 0; pass < kWarmPasses + kPasses; ++pass) {
      if (pass == kWarmPasses) {
        begin = fake().now();
      }
      for (std::size_t block = 0; block < streamer.block_count(); ++block) {
        const BlockLease lease = must(streamer.acquire(block, stream));
        const TensorView& tensor = lease.tensors().front();
        user.read(stream, {tensor.data, tensor.size_bytes}, &seen,
                  std::chrono::nanoseconds(static_cast<std::int64_t>(GetParam().compute_s * 1e9)));
      }
      user.synchronize(stream);  // As a sampler does, which looks at the result of each step.
    }
    return std::chrono::duration<double>(fake().now() - begin).count() / kPasses;
  }

  static plan::PassModel model(const StreamPack& pack) {
    const auto block_bytes = static_cast<double>(pack.extent("layers.0").stored_bytes);
    plan::PassModel model;
    std::size_t disk_count = 0;
    std::size_t streamed_count = 0;
    for (const Tier tier : tiers()) {
      plan::BlockCost cost;
      cost.compute_s = GetParam().compute_s;
      if (tier != Tier::kGpu) {
        cost.copy_s = block_bytes / static_cast<double>(kLinkBytesPerS);
        ++streamed_count;
      }
      if (tier == Tier::kDisk) {
        cost.read_s = block_bytes / static_cast<double>(kDiskBytesPerS);
        ++disk_count;
      }
      model.blocks.push_back(cost);
    }
    model.has_link = true;
    model.host_slot_count = std::min<std::size_t>(1 + GetParam().lookahead_blocks,
                                                  std::max<std::size_t>(disk_count, 1));
    model.device_slot_count =
        std::min(GetParam().device_slot_count, std::max<std::size_t>(streamed_count, 1));
    return model;
  }
};

TEST_P(PassTime, IsThatOfTheSlowestChannelAndAsPredicted) {
  const StreamPack pack({.tiers = std::vector(GetParam().tiers.size(), Tier::kDisk)});
  const double measured_s = measure(pack);
  const plan::Simulation predicted = plan::simulate(model(pack));
  RecordProperty("measured_ms", std::to_string(measured_s * 1e3));
  RecordProperty("predicted_ms", std::to_string(predicted.pass_s * 1e3));
  RecordProperty("bound_ms", std::to_string(predicted.channels.bound_s() * 1e3));
  EXPECT_LE(measured_s, 1.03 * predicted.channels.bound_s())
      << channel_name(predicted.channels.limiting());
  EXPECT_NEAR(measured_s, predicted.pass_s, 0.03 * predicted.pass_s);
}

// A block is read in about 0.25 s and copied in about 0.04 s.
INSTANTIATE_TEST_SUITE_P(
    Plans, PassTime,
    ::testing::Values(PassCase{"AllDisk", "dddddddd", 0.01, 2, 2},
                      PassCase{"AllRamLinkBound", "rrrrrrrr", 0.01, 2, 2},
                      PassCase{"AllRamComputeBound", "rrrrrrrr", 0.1, 2, 2},
                      PassCase{"AllResident", "gggggggg", 0.05, 2, 2},
                      PassCase{"DiskSpreadComputeBound", "rdrrrrrdrrrr", 0.05, 3, 2},
                      PassCase{"DiskSpreadDiskBound", "rdrdrdrd", 0.02, 3, 3},
                      PassCase{"ResidentSpreadLinkBound", "grgrgrgrgr", 0.01, 3, 2},
                      PassCase{"ResidentSpreadComputeBound", "ggrggrggr", 0.04, 2, 2},
                      PassCase{"Mixed", "grdgrrgrdgrr", 0.03, 4, 3},
                      PassCase{"DiskTogether", "ddrrrrrrrr", 0.06, 3, 2}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace trash_panda::runtime
