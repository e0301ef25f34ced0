#include "trash_panda/runtime/streamer.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/file.h"

#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Tier;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using trash_panda::testing::ExpectedTensor;
using trash_panda::testing::must;
using trash_panda::testing::stream_options;
using trash_panda::testing::StreamPack;

constexpr Tier kDisk = Tier::kDisk;
constexpr Tier kRam = Tier::kRam;
constexpr Tier kG = Tier::kGpu;

std::map<std::string, ExpectedTensor> contents(const std::vector<TensorView>& tensors) {
  std::map<std::string, ExpectedTensor> found;
  for (const TensorView& tensor : tensors) {
    const auto* data = reinterpret_cast<const char*>(tensor.data);
    found.emplace(std::string(tensor.name),
                  ExpectedTensor{tensor.dtype, std::string(data, data + tensor.size_bytes)});
  }
  return found;
}

std::string block_prefix(std::size_t block) {
  return StreamPack::block_name(block) + ".";
}

void expect_block(const StreamPack& pack, Streamer& streamer, std::size_t block,
                  std::optional<Dtype> compute) {
  const Result<BlockLease> lease = streamer.acquire(block);
  ASSERT_TRUE(lease) << lease.error().to_string();
  EXPECT_EQ(contents(lease->tensors()), pack.expected(block_prefix(block), compute))
      << "block " << block;
}

void run_pass(Streamer& streamer) {
  for (std::size_t block = 0; block < streamer.block_count(); ++block) {
    const Result<BlockLease> lease = streamer.acquire(block);
    ASSERT_TRUE(lease) << lease.error().to_string();
  }
}

/// Log lines, from any thread.
class Lines {
 public:
  [[nodiscard]] Logger logger() {
    return [this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      if (level == LogLevel::kWarning) {
        warnings_.emplace_back(line);
      }
      all_.emplace_back(line);
    };
  }
  [[nodiscard]] const std::vector<std::string>& all() const { return all_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> all_;
  std::vector<std::string> warnings_;
};

struct ModeCase {
  std::string name;
  std::vector<Tier> tiers;
  std::optional<std::uint64_t> lookahead_bytes;
};

/// The pack and what it must give are worked out once, as slow_floats.h is slow.
class StreamerModes : public ::testing::TestWithParam<ModeCase> {
 protected:
  static void SetUpTestSuite() {
    pack_ = std::make_unique<StreamPack>(StreamPack::Options{
        .tiers = {kDisk, kRam, kDisk, kDisk, kRam, kDisk}, .extra_bytes_of_block_1 = 4'500'000});
  }
  static void TearDownTestSuite() {
    expected_.clear();
    pack_.reset();
  }

  static const std::map<std::string, ExpectedTensor>& expected(const std::string& prefix,
                                                               std::optional<Dtype> compute) {
    const auto [at, is_new] = expected_.try_emplace({prefix, compute});
    if (is_new) {
      at->second = pack_->expected(prefix, compute);
    }
    return at->second;
  }

  static void expect_block(Streamer& streamer, std::size_t block, std::optional<Dtype> compute) {
    const Result<BlockLease> lease = streamer.acquire(block);
    ASSERT_TRUE(lease) << lease.error().to_string();
    // Not EXPECT_EQ: it would print megabytes.
    EXPECT_TRUE(contents(lease->tensors()) == expected(block_prefix(block), compute))
        << "block " << block;
  }

  static std::unique_ptr<StreamPack> pack_;

 private:
  using Key = std::pair<std::string, std::optional<Dtype>>;
  static std::map<Key, std::map<std::string, ExpectedTensor>> expected_;
};

std::unique_ptr<StreamPack> StreamerModes::pack_;
std::map<StreamerModes::Key, std::map<std::string, ExpectedTensor>> StreamerModes::expected_;

TEST_P(StreamerModes, TensorsAreTheSameInEveryModeAndOrder) {
  const StreamPack& pack = *pack_;
  std::mt19937 random(99);
  for (const std::optional<Dtype> compute :
       {std::optional<Dtype>(), std::optional(Dtype::kBf16), std::optional(Dtype::kF16),
        std::optional(Dtype::kF32)}) {
    StreamOptions options = stream_options();
    options.compute_dtype = compute;
    options.lookahead_bytes = GetParam().lookahead_bytes;
    options.verify = VerifyMode::kFull;
    options.tiers = GetParam().tiers;
    if (compute == Dtype::kF16) {  // Many small reads, and few large ones.
      options.read_depth = 16;
      options.read_request_bytes = 64 * 1024;
    } else if (compute == Dtype::kF32) {
      options.read_depth = 1;
      options.read_request_bytes = 64 * 1024 * 1024;
    }
    Streamer streamer = must(Streamer::open(pack.path(), options));
    std::map<std::string, ExpectedTensor> base = expected("embed.", compute);
    base.insert(expected("head.", compute).begin(), expected("head.", compute).end());
    EXPECT_EQ(contents(streamer.base()), base);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t block = 0; block < pack.block_count(); ++block) {
        expect_block(streamer, block, compute);
      }
    }
    for (int jump = 0; jump < 12; ++jump) {
      expect_block(streamer, random() % pack.block_count(), compute);
    }
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Mixes, StreamerModes,
    ::testing::Values(
        ModeCase{"AllDiskLookahead0", {kDisk, kDisk, kDisk, kDisk, kDisk, kDisk}, 0},
        ModeCase{"AllDiskLookahead1", {kDisk, kDisk, kDisk, kDisk, kDisk, kDisk}, 1},
        ModeCase{
            "AllDiskLookaheadTwoBlocks", {kDisk, kDisk, kDisk, kDisk, kDisk, kDisk}, 9'000'000},
        ModeCase{"AllDiskLookaheadBeyondAll", {kDisk, kDisk, kDisk, kDisk, kDisk, kDisk}, 1U << 30},
        ModeCase{"AllRam", {kRam, kRam, kRam, kRam, kRam, kRam}, std::nullopt},
        ModeCase{"AllGpu", {kG, kG, kG, kG, kG, kG}, std::nullopt},
        ModeCase{"OneDisk", {kRam, kRam, kRam, kDisk, kRam, kRam}, 0},
        ModeCase{"Mixed", {kDisk, kRam, kDisk, kG, kRam, kDisk}, std::nullopt},
        ModeCase{"MixedLookahead8", {kDisk, kDisk, kRam, kDisk, kDisk, kRam}, 8'000'000}),
    [](const auto& tested) { return tested.param.name; });

TEST(Streamer, ReadsRamBlocksOnceAndDiskBlocksEveryPass) {
  const StreamPack pack({.tiers = {kDisk, kRam, kDisk, kDisk, kRam, kDisk}});
  Streamer streamer = must(Streamer::open(pack.path(), stream_options()));
  const std::uint64_t disk_bytes = pack.stored_bytes(Tier::kDisk);
  const std::uint64_t ram_bytes = pack.stored_bytes(Tier::kRam);
  run_pass(streamer);
  EXPECT_EQ(streamer.stats().pass_count, 1U);
  EXPECT_EQ(streamer.stats().pass_read_bytes_ram, ram_bytes);
  EXPECT_EQ(streamer.stats().pass_read_bytes_disk, disk_bytes);
  for (std::uint64_t pass = 2; pass < 5; ++pass) {
    run_pass(streamer);
    EXPECT_EQ(streamer.stats().pass_count, pass);
    EXPECT_EQ(streamer.stats().pass_read_bytes_ram, 0U);
    EXPECT_EQ(streamer.stats().pass_read_bytes_disk, disk_bytes);
  }
  const StreamStats stats = streamer.stats();
  EXPECT_EQ(stats.read_bytes_base, pack.stored_bytes(Tier::kBase));
  EXPECT_EQ(stats.read_bytes_ram, ram_bytes);
  EXPECT_GE(stats.read_bytes_disk, 4 * disk_bytes);
  EXPECT_LE(stats.read_bytes_disk, 5 * disk_bytes);
  EXPECT_EQ(stats.mispredict_count, 0U);
  EXPECT_THAT(stats.io_description, AnyOf(StartsWith("io_uring x4"), StartsWith("pread x4, ")));
}

TEST(Streamer, EachDriveIsReadByAnEngineOfItsOwn) {
  const StreamPack pack({.tiers = {kDisk, kRam, kDisk}});
  const std::filesystem::path shard = pack.shard_path(pack.extent("layers.0"));
  const std::filesystem::path elsewhere =
      "/dev/shm/tp-test-" + std::to_string(::getpid()) + ".safetensors";
  std::error_code error;
  if (!std::filesystem::copy_file(shard, elsewhere, error) ||
      filesystem_name(elsewhere) == filesystem_name(shard)) {
    std::filesystem::remove(elsewhere, error);
    GTEST_SKIP() << "/dev/shm is no other filesystem: " << error.message();
  }
  std::filesystem::remove(shard);
  std::filesystem::create_symlink(elsewhere, shard);
  Streamer streamer = must(Streamer::open(pack.path(), stream_options()));
  std::filesystem::remove(elsewhere);  // It is open.
  EXPECT_THAT(streamer.stats().io_description, HasSubstr(" for each of 2 drives, "));
  EXPECT_THAT(streamer.stats().io_description, HasSubstr(" and "));
  for (int pass = 0; pass < 2; ++pass) {
    for (std::size_t block = 0; block < pack.block_count(); ++block) {
      expect_block(pack, streamer, block, std::nullopt);
    }
  }
}

TEST(Streamer, EarlyExitEndsAPass) {
  const StreamPack pack({.tiers = {kDisk, kDisk, kDisk, kDisk}});
  Streamer streamer = must(Streamer::open(pack.path(), stream_options()));
  must(streamer.acquire(0));
  must(streamer.acquire(1));
  EXPECT_EQ(streamer.stats().pass_read_bytes_disk, 0U);
  must(streamer.acquire(0));
  const StreamStats stats = streamer.stats();
  EXPECT_EQ(stats.pass_count, 2U);
  EXPECT_EQ(stats.pass_read_bytes_disk, 2 * pack.extent("layers.0").stored_bytes);
  EXPECT_EQ(stats.mispredict_count, 1U);
}

TEST(Streamer, CountsEachBlockOutOfOrder) {
  const StreamPack pack({.tiers = {kDisk, kDisk, kDisk, kDisk, kDisk}});
  Streamer streamer = must(Streamer::open(pack.path(), stream_options()));
  for (const std::size_t block : {2U, 3U, 1U, 1U, 2U}) {  // Jumps to 2, to 1, and to 1 again.
    must(streamer.acquire(block));
  }
  EXPECT_EQ(streamer.stats().mispredict_count, 3U);
}

TEST(Streamer, BooksBaseRamTierAndSlotsExactly) {
  const StreamPack pack({.tiers = {kDisk, kRam, kDisk, kDisk, kDisk}});
  const std::uint64_t slot_bytes = pack.extent("layers.0").stored_bytes;
  struct Case {
    std::uint64_t lookahead_bytes;
    std::uint64_t slot_count;
  };
  for (const Case& tested :
       {Case{0, 2}, Case{slot_bytes, 2}, Case{slot_bytes + 1, 3}, Case{100 * slot_bytes, 4}}) {
    StreamOptions options = stream_options();
    options.lookahead_bytes = tested.lookahead_bytes;
    Streamer streamer = must(Streamer::open(pack.path(), options));
    run_pass(streamer);
    run_pass(streamer);
    const std::uint64_t expected_bytes = pack.stored_bytes(Tier::kBase) +
                                         pack.stored_bytes(Tier::kRam) +
                                         tested.slot_count * slot_bytes;
    EXPECT_EQ(streamer.stats().weight_memory_bytes, expected_bytes);
    EXPECT_EQ(streamer.stats().weight_memory_bytes_max, expected_bytes);
  }
}

TEST(Streamer, TakesTheLookaheadOfThePlan) {
  const StreamPack pack({.tiers = {kDisk, kDisk, kDisk, kDisk, kDisk, kDisk, kDisk, kDisk},
                         .planned_lookahead_bytes = 200'000});
  const std::uint64_t slot_bytes = pack.extent("layers.0").stored_bytes;
  ASSERT_TRUE(4 * slot_bytes < 200'000 && 200'000 <= 5 * slot_bytes) << slot_bytes;
  Streamer streamer = must(Streamer::open(pack.path(), stream_options()));
  EXPECT_EQ(streamer.stats().weight_memory_bytes, pack.stored_bytes(Tier::kBase) + 6 * slot_bytes);
}

TEST(Streamer, ReadsAsTheDriveWasMeasuredUnlessTold) {
  plan::Rates rates;
  rates.disk_request_bytes = 128 * 1024;
  rates.disk_queue_depth = 11;
  const StreamPack pack({.tiers = {kDisk, kDisk, kRam}, .planned_rates = rates});
  StreamOptions options = stream_options();
  Streamer as_planned = must(Streamer::open(pack.path(), options));
  EXPECT_THAT(as_planned.stats().io_description, HasSubstr(" x11"));
  run_pass(as_planned);
  options.read_depth = 3;
  Streamer as_told = must(Streamer::open(pack.path(), options));
  EXPECT_THAT(as_told.stats().io_description, HasSubstr(" x3"));
}

TEST(Streamer, WithoutAPlanReadsTwoBlocksAheadAndSaysSo) {
  const StreamPack pack({.tiers = {kDisk, kDisk, kDisk, kDisk, kDisk}});
  std::filesystem::remove(pack.path() / "plan.toml");
  Lines lines;
  StreamOptions options = stream_options();
  options.log = lines.logger();
  Streamer streamer = must(Streamer::open(pack.path(), options));
  EXPECT_EQ(streamer.stats().weight_memory_bytes,
            pack.stored_bytes(Tier::kBase) + 3 * pack.extent("layers.0").stored_bytes);
  EXPECT_THAT(lines.warnings(), Contains(HasSubstr("reading 2 blocks ahead")).Times(1));
}

TEST(Streamer, MoreLeasesThanSlotsIsAnErrorAndNoDeadlock) {
  const StreamPack pack({.tiers = {kDisk, kDisk, kRam, kDisk, kDisk}});
  StreamOptions options = stream_options();
  options.lookahead_bytes = 1;  // Two slots.
  Streamer streamer = must(Streamer::open(pack.path(), options));
  BlockLease first = must(streamer.acquire(0));
  const BlockLease second = must(streamer.acquire(1));
  const BlockLease in_ram = must(streamer.acquire(2));  // Has memory of its own.
  const Result<BlockLease> third = streamer.acquire(3);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), ErrorCode::kUsage);
  EXPECT_EQ(third.error().to_string(),
            "block \"layers.3\" can't be acquired: all 2 slots are held; release a lease first, or "
            "ask for more lookahead");
  EXPECT_EQ(contents(second.tensors()), pack.expected("layers.1.", std::nullopt));
  first.release();
  expect_block(pack, streamer, 3, std::nullopt);
  EXPECT_EQ(streamer.stats().mispredict_count, 0U);
}

TEST(Streamer, ExpandedRamBlocksHeldAtOnceAreBounded) {
  const StreamPack pack({.tiers = {kRam, kRam, kRam, kRam}});
  StreamOptions options = stream_options();
  options.compute_dtype = Dtype::kBf16;
  Streamer streamer = must(Streamer::open(pack.path(), options));
  BlockLease first = must(streamer.acquire(0));
  const BlockLease second = must(streamer.acquire(1));
  EXPECT_EQ(contents(first.tensors()), pack.expected("layers.0.", Dtype::kBf16));
  EXPECT_EQ(contents(second.tensors()), pack.expected("layers.1.", Dtype::kBf16));
  const Result<BlockLease> third = streamer.acquire(2);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), ErrorCode::kUsage);
  first.release();
  expect_block(pack, streamer, 2, Dtype::kBf16);
}

TEST(Streamer, LeasesOfResidentBlocksMayBeHeldFromPassToPass) {
  const StreamPack pack({.tiers = {kRam, kDisk, kRam, kDisk, kRam, kDisk}});
  StreamOptions options = stream_options();
  options.lookahead_bytes = 0;
  Streamer streamer = must(Streamer::open(pack.path(), options));
  std::vector<BlockLease> held;
  for (std::size_t block = 0; block < 6; ++block) {
    EXPECT_EQ(streamer.is_resident(block), block % 2 == 0);
    if (streamer.is_resident(block)) {
      held.push_back(must(streamer.acquire(block)));
    }
  }
  for (int pass = 0; pass < 2; ++pass) {
    for (const std::size_t block : {1U, 3U, 5U}) {
      expect_block(pack, streamer, block, std::nullopt);
    }
  }
  for (std::size_t at = 0; at < held.size(); ++at) {
    EXPECT_EQ(contents(held[at].tensors()), pack.expected(block_prefix(2 * at), std::nullopt));
  }
}

TEST(Streamer, BlocksThatAreExpandedAreNotResident) {
  const StreamPack pack({.tiers = {kRam, kDisk}});
  StreamOptions options = stream_options();
  options.compute_dtype = Dtype::kF32;
  const Streamer streamer = must(Streamer::open(pack.path(), options));
  EXPECT_FALSE(streamer.is_resident(0));
  EXPECT_FALSE(streamer.is_resident(1));
}

TEST(Streamer, LeasesEndInAnyOrder) {
  const StreamPack pack({.tiers = {kDisk, kDisk, kDisk, kDisk, kDisk, kDisk}});
  StreamOptions options = stream_options();
  options.lookahead_bytes = 3 * pack.extent("layers.0").stored_bytes;
  options.compute_dtype = Dtype::kF32;
  Streamer streamer = must(Streamer::open(pack.path(), options));
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<BlockLease> held;
    for (std::size_t block = 0; block < 4; ++block) {
      held.push_back(must(streamer.acquire(block)));
    }
    held[2].release();
    expect_block(pack, streamer, 4, Dtype::kF32);
    for (const std::size_t block : {3U, 0U, 1U}) {
      EXPECT_EQ(contents(held[block].tensors()), pack.expected(block_prefix(block), Dtype::kF32));
      held[block].release();
      EXPECT_THAT(held[block].tensors(), IsEmpty());
    }
    expect_block(pack, streamer, 5, Dtype::kF32);
  }
  EXPECT_EQ(streamer.stats().mispredict_count, 0U);
}

TEST(Streamer, LeasesOfOneBlockShareItsMemory) {
  const StreamPack pack({.tiers = {kDisk, kDisk}});
  StreamOptions options = stream_options();
  options.compute_dtype = Dtype::kBf16;
  Streamer streamer = must(Streamer::open(pack.path(), options));
  BlockLease first = must(streamer.acquire(0));
  const BlockLease second = must(streamer.acquire(0));
  EXPECT_EQ(first.tensors().front().data, second.tensors().front().data);
  first.release();
  EXPECT_EQ(contents(second.tensors()), pack.expected("layers.0.", Dtype::kBf16));
}

TEST(Streamer, UnchangedTensorsAreNotCopied) {
  const StreamPack pack({.tiers = {kRam}});
  StreamOptions options = stream_options();
  options.compute_dtype = Dtype::kBf16;
  Streamer streamer = must(Streamer::open(pack.path(), options));
  std::map<std::string, std::byte*> addresses;
  for (int pass = 0; pass < 2; ++pass) {
    const BlockLease lease = must(streamer.acquire(0));
    for (const TensorView& tensor : lease.tensors()) {
      const auto [at, is_new] = addresses.emplace(tensor.name, tensor.data);
      EXPECT_TRUE(is_new || at->second == tensor.data) << "addresses are stable: " << tensor.name;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data) % format::kTensorAlignment, 0U);
    }
  }
  // In place, the BF16 and I32 tensors lie as far apart as in the extent.
  const format::PackedExtent& extent = pack.extent("layers.0");
  std::map<std::string, std::uint64_t> offsets;
  for (const format::PackedTensor& tensor : extent.tensors) {
    offsets.emplace(tensor.name, tensor.offset_bytes);
  }
  EXPECT_EQ(static_cast<std::uint64_t>(addresses.at("layers.0.steps") -
                                       addresses.at("layers.0.attention.weight")),
            offsets.at("layers.0.steps") - offsets.at("layers.0.attention.weight"));
}

TEST(Streamer, OverridesDecideOverTheComputeDtype) {
  const StreamPack pack({.tiers = {kDisk, kDisk}});
  StreamOptions options = stream_options();
  options.compute_dtype = Dtype::kBf16;
  options.dtype_overrides = {{"layers.0.norm.weight", Dtype::kF32},   // Stays.
                             {"layers.0.up.weight", Dtype::kF16},     // Another one.
                             {"layers.1.up.weight", Dtype::kF8E4M3},  // Stays coded, with scale.
                             {"layers.1.table", Dtype::kF32},         // F64 only when asked.
                             {"layers.0.steps", Dtype::kI32},
                             {"tied.weight", Dtype::kF32}};  // An alias.
  Streamer streamer = must(Streamer::open(pack.path(), options));
  {
    const BlockLease lease = must(streamer.acquire(0));
    std::map<std::string, ExpectedTensor> expected = pack.expected("layers.0.", Dtype::kBf16);
    const auto as_f32 = pack.expected("layers.0.norm.weight", Dtype::kF32);
    expected.at("layers.0.norm.weight") = as_f32.at("layers.0.norm.weight");
    const auto as_f16 = pack.expected("layers.0.up.weight", Dtype::kF16);
    expected.at("layers.0.up.weight") = as_f16.at("layers.0.up.weight");
    EXPECT_EQ(contents(lease.tensors()), expected);
  }
  {
    const BlockLease lease = must(streamer.acquire(1));
    const auto found = contents(lease.tensors());
    const auto as_stored = pack.expected("layers.1.up.weight", std::nullopt);
    EXPECT_EQ(found.at("layers.1.up.weight"), as_stored.at("layers.1.up.weight"));
    EXPECT_EQ(found.at("layers.1.up.weight_scale"), as_stored.at("layers.1.up.weight_scale"));
    EXPECT_EQ(found.at("layers.1.table").dtype, Dtype::kF32);
    EXPECT_EQ(found.at("layers.1.table").bytes,
              trash_panda::testing::bytes_of(
                  std::vector<float>{static_cast<float>(1.0 / 3), static_cast<float>(-1e-9)}));
  }
  EXPECT_EQ(contents(streamer.base()).at("embed.weight").dtype, Dtype::kF32);
}

TEST(Streamer, RefusesOptionsThatCannotBeHonoured) {
  const StreamPack pack({.tiers = {kDisk, kRam}});
  const auto refusal = [&](const StreamOptions& options) {
    const Result<Streamer> streamer = Streamer::open(pack.path(), options);
    EXPECT_FALSE(streamer);
    if (streamer) {
      return std::string("opened");
    }
    EXPECT_EQ(streamer.error().code(), ErrorCode::kUsage) << streamer.error().message();
    return streamer.error().message();
  };
  StreamOptions options = stream_options();
  options.tiers = {{kDisk}};
  EXPECT_EQ(refusal(options), "tiers are given for 1 blocks, but the pack has 2");
  options = stream_options();
  options.tiers = {{kDisk, Tier::kBase}};
  EXPECT_EQ(refusal(options), "block \"layers.1\" can't be given the tier base");
  options = stream_options();
  options.compute_dtype = Dtype::kI8;
  EXPECT_EQ(refusal(options), "weights can't be expanded to I8");
  options = stream_options();
  options.dtype_overrides = {{"layers.7.norm.weight", Dtype::kF32}};
  EXPECT_EQ(refusal(options),
            "a dtype is given for \"layers.7.norm.weight\", which is not in the pack");
  options.dtype_overrides = {{"layers.0.steps", Dtype::kF32}};
  EXPECT_EQ(refusal(options), "\"layers.0.steps\" is stored as I32 and can't become F32");
  options.dtype_overrides = {{"embed.weight", Dtype::kF32}, {"tied.weight", Dtype::kBf16}};
  EXPECT_EQ(refusal(options),
            "\"tied.weight\" and \"embed.weight\" are tied, but BF16 and F32 are asked for");
  options = stream_options();
  options.io = IoBackend::kPread;
  options.read_depth = 0;
  EXPECT_EQ(refusal(options), "0 read threads were asked for");
  options = stream_options();
  for (const std::uint64_t request_bytes : {0ULL, 65535ULL, 65536ULL + 4096, 65ULL << 20}) {
    options.read_request_bytes = request_bytes;
    EXPECT_EQ(refusal(options), fmt::format("reads of {} bytes were asked for", request_bytes));
  }
}

TEST(Streamer, RefusesABlockThatDoesNotExist) {
  const StreamPack pack({.tiers = {kDisk}});
  Streamer streamer = must(Streamer::open(pack.path(), stream_options()));
  const Result<BlockLease> lease = streamer.acquire(1);
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().code(), ErrorCode::kUsage);
}

TEST(Streamer, SaysOnceThatGpuBlocksWaitInRam) {
  const StreamPack pack({.tiers = {kG, kDisk, kG}});
  Lines lines;
  StreamOptions options = stream_options();
  options.log = lines.logger();
  Streamer streamer = must(Streamer::open(pack.path(), options));
  run_pass(streamer);
  run_pass(streamer);
  EXPECT_EQ(
      std::ranges::count(lines.all(), "2 blocks of tier gpu wait in RAM: streaming on the CPU"), 1);
  EXPECT_EQ(streamer.stats().pass_read_bytes_ram, 0U);
}

TEST(Streamer, SaysOnceWhichFilesystemRefusesDirectReads) {
  // Run once more under a disk that refuses them: see CMakeLists.txt.
  const char* fault = std::getenv("TP_TEST_DISK");
  const bool is_refused = fault != nullptr && std::string_view(fault).starts_with("refuse");
  const StreamPack pack({.tiers = {kDisk, kRam, kG}});
  ASSERT_GT(pack.manifest().shards.size(), 1U);
  Lines lines;
  StreamOptions options = stream_options();
  options.log = lines.logger();
  const Streamer streamer = must(Streamer::open(pack.path(), options));
  const bool is_direct = streamer.stats().io_description.find("direct (") != std::string::npos;
  if (is_refused) {
    EXPECT_FALSE(is_direct);
  }
  const std::string filesystem = filesystem_name(pack.path());
  if (is_direct) {
    EXPECT_THAT(streamer.stats().io_description, EndsWith(", direct (" + filesystem + ")"));
    EXPECT_THAT(lines.warnings(), IsEmpty());
  } else {
    EXPECT_THAT(streamer.stats().io_description, EndsWith(", buffered (" + filesystem + ")"));
    EXPECT_THAT(lines.warnings(),
                ElementsAre(HasSubstr(filesystem + " does not take direct reads (")));
  }
}

TEST(Streamer, PackOfBaseTensorsOnlyOpens) {
  const StreamPack pack({.tiers = {}});
  Streamer streamer = must(Streamer::open(pack.path(), stream_options()));
  EXPECT_EQ(streamer.block_count(), 0U);
  EXPECT_FALSE(streamer.base().empty());
  EXPECT_FALSE(streamer.acquire(0));
}

}  // namespace
}  // namespace trash_panda::runtime
