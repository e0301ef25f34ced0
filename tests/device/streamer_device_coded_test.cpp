// Streaming packs in the exponent code to a GPU: they cross the link and wait there coded, and are
// decoded by the GPU.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/runtime/streamer.h"

#include "device/support/fake_gpu.h"
#include "format/support/coded_sample.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Tier;
using testing::CodedSample;
using testing::fake;
using testing::GpuUser;
using ::testing::HasSubstr;
using testing::must;

using CodedTensors = std::map<std::string, std::string>;

StreamOptions coded_options(const std::shared_ptr<Device>& device, std::vector<Tier> tiers) {
  StreamOptions options;
  options.device = device;
  options.tiers = std::move(tiers);
  options.io = IoBackend::kPread;
  return options;
}

/// What kernels of the user read in some passes; the base first.
CodedTensors read_passes(Streamer& streamer, GpuUser& user) {
  const StreamHandle stream = user.make_stream();
  std::vector<std::unique_ptr<std::string>> reads;
  std::vector<std::pair<std::string, const std::string*>> seen;
  const auto read = [&](const std::vector<TensorView>& tensors) {
    for (const TensorView& tensor : tensors) {
      reads.push_back(std::make_unique<std::string>());
      seen.emplace_back(tensor.name, reads.back().get());
      user.read(stream, {tensor.data, tensor.size_bytes}, reads.back().get());
    }
  };
  read(streamer.base());
  for (int pass = 0; pass < 3; ++pass) {
    for (std::size_t block = 0; block < streamer.block_count(); ++block) {
      const BlockLease lease = must(streamer.acquire(block, stream));
      read(lease.tensors());
    }
  }
  user.synchronize(stream);
  CodedTensors found;
  for (const auto& [name, bytes] : seen) {
    const auto [at, is_new] = found.emplace(name, *bytes);
    EXPECT_TRUE(at->second == *bytes) << name << " differs between passes";
  }
  return found;
}

/// F32 of BF16: with zeros behind.
std::string wide_f32(const std::string& bf16) {
  std::string wide;
  for (std::size_t i = 0; i < bf16.size(); i += 2) {
    wide += std::string(2, '\0') + bf16.substr(i, 2);
  }
  return wide;
}

class StreamerOnDeviceCoded : public testing::FakeGpuTest {
 protected:
  StreamerOnDeviceCoded() { manifest_ = must(sample_.write()); }

  void flip_byte(const std::string& tensor_name, std::uint64_t at) {
    for (const format::PackedExtent& extent : manifest_.extents) {
      for (const format::PackedTensor& tensor : extent.tensors) {
        if (tensor.name == tensor_name) {
          const auto path = sample_.target() / manifest_.shards[extent.shard_index].name;
          std::string text = testing::read_text(path);
          text[extent.offset_bytes + tensor.stored_offset_bytes + at] ^= char{0x11};
          testing::write_text(path, text);
        }
      }
    }
  }

  CodedSample sample_;
  format::Manifest manifest_;
};

TEST_F(StreamerOnDeviceCoded, GivesEveryTensorAsItWas) {
  for (const std::vector<Tier>& tiers :
       {std::vector(3, Tier::kDisk), std::vector(3, Tier::kRam), std::vector(3, Tier::kGpu),
        std::vector{Tier::kGpu, Tier::kDisk, Tier::kRam}}) {
    fake().reset({.delays = fake_cuda::Delays::kRandom, .seed = 3});
    const std::shared_ptr<Device> device = open_gpu();
    GpuUser user;
    Streamer streamer = must(Streamer::open(sample_.target(), coded_options(device, tiers)));
    EXPECT_TRUE(read_passes(streamer, user) == sample_.tensors());
  }
}

TEST_F(StreamerOnDeviceCoded, ExpandsWhatItDecodes) {
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  StreamOptions options = coded_options(device, {Tier::kGpu, Tier::kDisk, Tier::kRam});
  options.compute_dtype = Dtype::kF32;
  Streamer streamer = must(Streamer::open(sample_.target(), options));
  const CodedTensors found = read_passes(streamer, user);
  EXPECT_TRUE(found.at("layers.0.f32") == sample_.tensors().at("layers.0.f32"));
  for (const char* name : {"embed.weight", "layers.0.w", "layers.1.w"}) {
    EXPECT_TRUE(found.at(name) == wide_f32(sample_.tensors().at(name))) << name;
  }
}

TEST_F(StreamerOnDeviceCoded, BlocksCrossTheLinkAndStayCoded) {
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  Streamer streamer =
      must(Streamer::open(sample_.target(), coded_options(device, std::vector(3, Tier::kGpu))));
  std::uint64_t stored_bytes = 0;
  std::uint64_t raw_bytes = 0;
  std::uint64_t made_bytes = 0;
  for (std::size_t at = 1; at < manifest_.extents.size(); ++at) {  // The first is the base.
    const format::PackedExtent& extent = manifest_.extents[at];
    stored_bytes += extent.stored_bytes;
    std::uint64_t block_bytes = 0;
    for (const format::PackedTensor& tensor : extent.tensors) {
      block_bytes += tensor.size_bytes;
    }
    raw_bytes += block_bytes;
    made_bytes = std::max(made_bytes, block_bytes);
  }
  ASSERT_LT(stored_bytes, raw_bytes);
  std::uint64_t base_bytes = 0;
  for (const TensorView& tensor : streamer.base()) {
    base_bytes += tensor.size_bytes;
  }
  // All blocks as they are stored, one decoded, and less than a page each for tables and padding.
  EXPECT_LE(fake().device_bytes(0), base_bytes + stored_bytes + made_bytes + 5 * 4096);
}

TEST_F(StreamerOnDeviceCoded, NamesTheTensorWhoseChunksAreDamaged) {
  flip_byte("layers.0.w", 0);
  const std::shared_ptr<Device> device = open_gpu();
  Streamer streamer =
      must(Streamer::open(sample_.target(), coded_options(device, std::vector(3, Tier::kDisk))));
  const Result<BlockLease> lease = streamer.acquire(0);
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(lease.error().message(), HasSubstr("\"layers.0.w\""));
  must(streamer.acquire(1));
}

TEST_F(StreamerOnDeviceCoded, CodesThatAreDamagedInsideEndTheRun) {
  // An escape more than the tile says: only the decoder sees that.
  constexpr std::uint64_t kRests = 192;  // Behind the head and the records of 32 tiles.
  constexpr std::uint64_t kCodes = kRests + 65'536;
  flip_byte("layers.1.w", kCodes + 5);
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  Streamer streamer =
      must(Streamer::open(sample_.target(), coded_options(device, std::vector(3, Tier::kDisk))));
  must(streamer.acquire(0, stream));
  must(streamer.acquire(1, stream));
  user.synchronize(stream);
  const Result<BlockLease> lease = streamer.acquire(2, stream);
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().code(), ErrorCode::kCorrupt);
  EXPECT_THAT(lease.error().hint(), HasSubstr("verify"));
}

TEST_F(StreamerOnDeviceCoded, DamageInsideWhatWasAcquiredLastIsToldWhenAsked) {
  constexpr std::uint64_t kCodes = 192 + 65'536;
  flip_byte("layers.1.w", kCodes + 5);
  fake().reset({.delays = fake_cuda::Delays::kRandom, .seed = 5});
  const std::shared_ptr<Device> device = open_gpu();
  GpuUser user;
  const StreamHandle stream = user.make_stream();
  Streamer streamer =
      must(Streamer::open(sample_.target(), coded_options(device, std::vector(3, Tier::kDisk))));
  must(streamer.acquire(0, stream));
  must(streamer.check_decoded());
  must(streamer.acquire(1, stream));
  const Result<void> checked = streamer.check_decoded();
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().code(), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace trash_panda::runtime
