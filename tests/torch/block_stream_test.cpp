#include "trash_panda/torch/block_stream.h"

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/file_system.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/plan_toml.h"

#include "device/support/fake_gpu.h"
#include "format/support/checkpoint_builder.h"
#include "format/support/sample_pack.h"
#include "runtime/support/stream_pack.h"

namespace trash_panda::torch {
namespace {

using format::Dtype;
using format::Tier;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::ExpectedTensor;
using ::testing::HasSubstr;
using testing::must;
using testing::StreamPack;

constexpr Tier kDisk = Tier::kDisk;
constexpr Tier kRam = Tier::kRam;

const std::map<Dtype, at::ScalarType> kScalarTypes = {{Dtype::kBf16, at::kBFloat16},
                                                      {Dtype::kF16, at::kHalf},
                                                      {Dtype::kF32, at::kFloat},
                                                      {Dtype::kF64, at::kDouble},
                                                      {Dtype::kI32, at::kInt},
                                                      {Dtype::kI64, at::kLong},
                                                      {Dtype::kF8E4M3, at::kFloat8_e4m3fn},
                                                      {Dtype::kF8E8M0, at::kFloat8_e8m0fnu}};

std::string bytes_of_tensor(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

void expect_tensor(const at::Tensor& tensor, const ExpectedTensor& expected) {
  EXPECT_EQ(tensor.scalar_type(), kScalarTypes.at(expected.dtype));
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_TRUE(tensor.device().is_cpu());
  EXPECT_FALSE(tensor.requires_grad());
  EXPECT_TRUE(bytes_of_tensor(tensor) == expected.bytes);
}

/// The message of a c10::Error of this class.
template <class E>
std::string thrown_by(const auto& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// Two slots: with a lookahead of one byte, one block is read ahead.
BlockStream open_stream(const StreamPack& pack, std::optional<Dtype> compute = {}) {
  runtime::StreamOptions options = testing::stream_options();
  options.lookahead_bytes = 1;
  options.compute_dtype = compute;
  return must(BlockStream::open(pack.path(), options));
}

TEST(BlockStream, LendsEveryTensorInOrderAsThePackHasIt) {
  const StreamPack pack({.tiers = {kDisk, kRam, kDisk, kDisk}});
  for (const std::optional<Dtype> compute :
       {std::optional<Dtype>(), std::optional(Dtype::kBf16), std::optional(Dtype::kF32)}) {
    BlockStream stream = open_stream(pack, compute);
    for (int pass = 0; pass < 3; ++pass) {
      std::size_t index = 0;
      for (Block& block : stream.pass()) {
        EXPECT_EQ(block.index(), index);
        EXPECT_EQ(block.name(), StreamPack::block_name(index));
        const auto lease = block.acquire();
        ASSERT_TRUE(lease) << lease.error().to_string();
        const auto expected = pack.expected(StreamPack::block_name(index) + ".", compute);
        EXPECT_EQ(lease->names().size(), expected.size());
        for (const std::string_view name : lease->names()) {
          SCOPED_TRACE(name);
          expect_tensor(lease->tensor(name), expected.at(std::string(name)));
        }
        ++index;
      }
      EXPECT_EQ(index, 4U);
    }
    EXPECT_EQ(stream.streamer().stats().mispredict_count, 0U);
    EXPECT_EQ(stream.streamer().stats().pass_count, 3U);
  }
}

TEST(BlockStream, ServesBlocksLeftOutAndRepeated) {
  const StreamPack pack({.tiers = {kDisk, kDisk, kDisk, kDisk}});
  BlockStream stream = open_stream(pack);
  for (const std::size_t index : {0U, 2U, 2U, 1U, 3U}) {
    const auto lease = stream.pass()[index].acquire();
    ASSERT_TRUE(lease) << lease.error().to_string();
    const std::string name = StreamPack::block_name(index) + ".attention.weight";
    expect_tensor(lease->tensor(name), pack.expected(name, {}).at(name));
  }
  EXPECT_GT(stream.streamer().stats().mispredict_count, 0U);
}

TEST(BlockStream, HasTheTensorsOutsideBlocksAndTheirAliases) {
  const StreamPack pack({.tiers = {kDisk}});
  at::Tensor kept;
  const ExpectedTensor expected = pack.expected("embed.weight", {}).at("embed.weight");
  {
    const BlockStream stream = open_stream(pack);
    EXPECT_THAT(stream.names(), AllOf(Contains("embed.weight"), Contains("head.weight_scale")));
    EXPECT_EQ(stream.tensor("embed.weight").sizes(), at::IntArrayRef({50, 30}));
    EXPECT_EQ(stream.tensor("head.weight_scale").dim(), 0);
    EXPECT_TRUE(stream.contains("tied.weight"));
    EXPECT_FALSE(stream.contains("layers.0.steps"));
    kept = stream.tensor("tied.weight");
    EXPECT_EQ(kept.const_data_ptr(), stream.tensor("embed.weight").const_data_ptr());
    EXPECT_THAT(
        thrown_by<c10::IndexError>([&] { static_cast<void>(stream.tensor("embed.wieght")); }),
        HasSubstr("no tensor \"embed.wieght\" outside blocks, did you mean \"embed.weight\"?"));
  }
  expect_tensor(kept, expected);  // Keeps the stream's memory.
}

TEST(BlockLease, KnowsTensorsByFullNameAndByTheNameInTheBlock) {
  const StreamPack pack({.tiers = {kDisk, kDisk}});
  BlockStream stream = open_stream(pack);
  auto lease = must(stream.pass()[1].acquire());
  const at::Tensor tensor = lease.tensor("up.weight");
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({200, 150}));
  EXPECT_EQ(tensor.strides(), at::IntArrayRef({150, 1}));
  EXPECT_EQ(tensor.const_data_ptr(), lease.tensor("layers.1.up.weight").const_data_ptr());
  EXPECT_TRUE(lease.contains("up.weight_scale"));
  EXPECT_FALSE(lease.contains("layers.0.up.weight"));
  EXPECT_THAT(thrown_by<c10::IndexError>([&] { static_cast<void>(lease.tensor("up.wight")); }),
              HasSubstr("block layers.1 has no tensor \"up.wight\", did you mean \"up.weight\"?"));

  lease.release();
  lease.release();
  EXPECT_FALSE(lease.contains("up.weight"));
  EXPECT_THAT(lease.names(), ElementsAre());
  EXPECT_THAT(thrown_by<c10::Error>([&] { static_cast<void>(lease.tensor("up.weight")); }),
              HasSubstr("the lease of \"up.weight\" has ended"));
}

TEST(BlockLease, KeepsItsMemoryUntilTheLastTensorIsGone) {
  const StreamPack pack({.tiers = {kDisk, kDisk, kDisk, kDisk}});
  const std::string name = "layers.0.attention.weight";
  const ExpectedTensor expected = pack.expected(name, {}).at(name);
  BlockStream stream = open_stream(pack);
  at::Tensor kept;
  {
    const auto lease = must(stream.pass()[0].acquire());
    kept = lease.tensor(name).narrow(0, 0, 60);  // A view of a tensor of the lease.
  }
  // One slot is left, which all other blocks go through.
  for (const std::size_t index : {1U, 2U, 3U, 1U, 2U}) {
    const auto lease = stream.pass()[index].acquire();
    ASSERT_TRUE(lease) << lease.error().to_string();
    expect_tensor(kept, expected);
  }
  {
    const auto second = must(stream.pass()[1].acquire());
    const auto third = stream.pass()[2].acquire();
    ASSERT_FALSE(third) << "both slots are in use";
    EXPECT_EQ(third.error().code(), ErrorCode::kUsage);
    kept = at::Tensor();
  }
  const auto second = must(stream.pass()[1].acquire());
  EXPECT_TRUE(stream.pass()[2].acquire()) << "the tensor's slot came back with its end";
}

TEST(BlockLease, MayBeGoneBeforeOrAfterItsStreamAndOnAnotherThread) {
  const StreamPack pack({.tiers = {kDisk, kRam}});
  const std::string name = "layers.1.table";
  std::optional<BlockStream> stream = open_stream(pack);
  auto lease = std::make_unique<BlockLease>(must(stream->pass()[1].acquire()));
  Block block = stream->pass()[0];
  stream.reset();
  EXPECT_TRUE(block.acquire()) << "a block keeps what streams it";
  at::Tensor tensor = lease->tensor(name);
  std::thread([lease = std::move(lease)]() mutable { lease.reset(); }).join();
  expect_tensor(tensor, pack.expected(name, {}).at(name));
  std::thread([tensor = std::move(tensor)]() mutable { tensor = at::Tensor(); }).join();
}

TEST(BlockStream, ReturnsWhatTheStreamerRefuses) {
  const auto missing = BlockStream::open("no/such.panda");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::kMissing);

  const StreamPack pack({.tiers = {kDisk, kDisk, kDisk}});
  pack.flip_bit(pack.extent("layers.2"), 100);
  runtime::StreamOptions options = testing::stream_options();
  options.verify = runtime::VerifyMode::kFull;
  BlockStream stream = must(BlockStream::open(pack.path(), options));
  EXPECT_TRUE(stream.pass()[0].acquire());
  const auto damaged = stream.pass()[2].acquire();
  ASSERT_FALSE(damaged);
  EXPECT_EQ(damaged.error().code(), ErrorCode::kMismatch);
  EXPECT_TRUE(stream.pass()[0].acquire()) << "goes on after a failure";
}

/// A pack of one base tensor for each of these, from a checkpoint that it writes.
class DtypePack {
 public:
  struct Entry {
    Dtype dtype;
    format::Shape shape;
    at::ScalarType type;
    std::vector<std::int64_t> sizes;
  };

  explicit DtypePack(const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) {
      builder_.add_random(std::string(format::dtype_name(entry.dtype)), entry.dtype, entry.shape);
    }
    const std::filesystem::path file = dir_ / "model.safetensors";
    builder_.write(file);
    const auto checkpoint = must(format::Checkpoint::open(file));
    const auto weights = must(format::find_weights(checkpoint));
    format::PackLayout layout;
    layout.extents.push_back({.name = "base", .tier = Tier::kBase, .weights = {}});
    for (std::size_t at = 0; at < weights.weights.size(); ++at) {
      layout.extents[0].weights.push_back(at);
    }
    plan::Plan plan;
    plan.model_path = "model.safetensors";
    layout.plan_toml = plan::write_plan_toml(plan);
    format::PackOptions options;
    options.generator = "trash-panda test";
    options.reserve_bytes = 0;
    must(format::write_pack(FileSystem::posix(), checkpoint, weights, layout, path(), options));
  }

  [[nodiscard]] std::filesystem::path path() const { return dir_ / "model.panda"; }
  [[nodiscard]] const std::string& bytes(Dtype dtype) const {
    return builder_.tensors().at(std::string(format::dtype_name(dtype)));
  }

 private:
  testing::TempDir dir_;
  testing::SafetensorsBuilder builder_;
};

TEST(BlockStream, GivesEachDtypeOfSafetensorsItsOwnOfTorch) {
  const std::vector<DtypePack::Entry> entries = {
      {Dtype::kBool, {3}, at::kBool, {3}},
      {Dtype::kU8, {2, 3}, at::kByte, {2, 3}},
      {Dtype::kI8, {5}, at::kChar, {5}},
      {Dtype::kF8E5M2, {4, 2}, at::kFloat8_e5m2, {4, 2}},
      {Dtype::kF8E4M3, {4, 2}, at::kFloat8_e4m3fn, {4, 2}},
      {Dtype::kF8E8M0, {7}, at::kFloat8_e8m0fnu, {7}},
      {Dtype::kF8E4M3Fnuz, {4}, at::kFloat8_e4m3fnuz, {4}},
      {Dtype::kF8E5M2Fnuz, {4}, at::kFloat8_e5m2fnuz, {4}},
      {Dtype::kI16, {3}, at::kShort, {3}},
      {Dtype::kU16, {3}, at::kUInt16, {3}},
      {Dtype::kF16, {2, 0, 3}, at::kHalf, {2, 0, 3}},
      {Dtype::kBf16, {3, 3}, at::kBFloat16, {3, 3}},
      {Dtype::kI32, {}, at::kInt, {}},
      {Dtype::kU32, {2}, at::kUInt32, {2}},
      {Dtype::kF32, {2, 2}, at::kFloat, {2, 2}},
      {Dtype::kC64, {2}, at::kComplexFloat, {2}},
      {Dtype::kF64, {2}, at::kDouble, {2}},
      {Dtype::kI64, {2}, at::kLong, {2}},
      {Dtype::kU64, {2}, at::kUInt64, {2}},
      {Dtype::kF4, {3, 8}, at::kFloat4_e2m1fn_x2, {3, 4}},
      {Dtype::kF6E2M3, {2, 4}, at::kByte, {6}},
      {Dtype::kF6E3M2, {8}, at::kByte, {6}}};
  const DtypePack pack(entries);
  const BlockStream stream = must(BlockStream::open(pack.path(), testing::stream_options()));
  EXPECT_EQ(stream.names().size(), entries.size());
  for (const DtypePack::Entry& entry : entries) {
    SCOPED_TRACE(format::dtype_name(entry.dtype));
    const at::Tensor tensor = stream.tensor(format::dtype_name(entry.dtype));
    EXPECT_EQ(tensor.scalar_type(), entry.type);
    EXPECT_EQ(tensor.sizes(), at::IntArrayRef(entry.sizes));
    EXPECT_TRUE(tensor.is_contiguous());
    EXPECT_EQ(bytes_of_tensor(tensor), pack.bytes(entry.dtype));
  }
}

TEST(BlockStream, NamesTensorsThatTorchHasNoShapeFor) {
  const DtypePack pack({{Dtype::kF4, {6, 3}, at::kFloat4_e2m1fn_x2, {}}});
  const BlockStream stream = must(BlockStream::open(pack.path(), testing::stream_options()));
  EXPECT_THAT(thrown_by<c10::Error>([&] { static_cast<void>(stream.tensor("F4")); }),
              HasSubstr("tensor F4 of packed 4-bit floats has shape [6, 3]"));
}

class BlockStreamOnDevice : public testing::FakeGpuTest {};

TEST_F(BlockStreamOnDevice, LendsTensorsOfTheGpuUntilTheWorkOnThemIsQueued) {
  const StreamPack pack({.tiers = {kDisk, kRam, kDisk, kDisk}});
  testing::GpuUser user(1);
  const runtime::StreamHandle handle = user.make_stream();
  runtime::StreamOptions options = testing::stream_options();
  options.device = open_gpu(1);
  options.compute_dtype = Dtype::kBf16;
  BlockStream stream = must(BlockStream::open(pack.path(), options));
  options.device.reset();
  std::vector<std::pair<std::string, std::unique_ptr<std::string>>> read;
  for (int pass = 0; pass < 2; ++pass) {
    for (Block& block : stream.pass()) {
      std::optional<BlockLease> lease = must(block.acquire(handle));
      const std::string name = std::string(block.name()) + ".up.weight";
      const at::Tensor tensor = lease->tensor("up.weight");
      EXPECT_EQ(tensor.device(), c10::Device(c10::kCUDA, 1));
      EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
      EXPECT_EQ(tensor.sizes(), at::IntArrayRef({200, 150}));
      lease.reset();
      read.emplace_back(name, std::make_unique<std::string>());
      user.read(handle, {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()},
                read.back().second.get());
    }
  }
  user.synchronize(handle);
  for (const auto& [name, bytes] : read) {
    EXPECT_TRUE(*bytes == pack.expected(name, Dtype::kBf16).at(name).bytes) << name;
  }
}

TEST_F(BlockStreamOnDevice, SaysThatThisTorchHasNoStreamOfTheGpu) {
  const StreamPack pack({.tiers = {kDisk}});
  runtime::StreamOptions options = testing::stream_options();
  options.device = open_gpu();
  BlockStream stream = must(BlockStream::open(pack.path(), options));
  const auto lease = stream.pass()[0].acquire();
  ASSERT_FALSE(lease) << "this torch can use the fake driver?";
  EXPECT_EQ(lease.error().code(), ErrorCode::kDevice);
  EXPECT_THAT(lease.error().to_string(), AllOf(HasSubstr("torch has no stream of cuda:0"),
                                               HasSubstr("hand acquire() the stream")));
}

}  // namespace
}  // namespace trash_panda::torch
