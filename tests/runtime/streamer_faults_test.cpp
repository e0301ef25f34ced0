#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/runtime/streamer.h"

#include "runtime/support/stream_pack.h"

// What happens when the disk misbehaves, and when things end at a bad moment.

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Tier;
using ::testing::HasSubstr;
using trash_panda::testing::must;
using trash_panda::testing::read_text;
using trash_panda::testing::stream_options;
using trash_panda::testing::StreamPack;
using trash_panda::testing::write_text;

constexpr Tier kD = Tier::kDisk;
constexpr Tier kR = Tier::kRam;

StreamOptions full_verification() {
  StreamOptions options = stream_options();
  options.verify = VerifyMode::kFull;
  return options;
}

std::string bytes_of_tensor(const BlockLease& lease, std::string_view name) {
  for (const TensorView& tensor : lease.tensors()) {
    if (tensor.name == name) {
      const auto* data = reinterpret_cast<const char*>(tensor.data);
      return {data, data + tensor.size_bytes};
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

void expect_intact(const StreamPack& pack, Streamer& streamer, std::size_t block) {
  const Result<BlockLease> lease = streamer.acquire(block);
  ASSERT_TRUE(lease) << lease.error().to_string();
  const std::string name = StreamPack::block_name(block) + ".attention.weight";
  EXPECT_EQ(bytes_of_tensor(*lease, name), pack.expected(name, std::nullopt).at(name).bytes);
}

TEST(StreamerFaults, FlippedBitIsFoundAndNamesExtentAndShard) {
  const StreamPack pack({.tiers = {kD, kD, kD, kD}});
  const format::PackedExtent& extent = pack.extent("layers.2");
  Streamer streamer = must(Streamer::open(pack.path(), full_verification()));
  // Block 2 may have been read ahead before a flip: only the pass after the next is sure to see it.
  const auto run_until_seen = [&] {
    for (const std::size_t block : {0U, 1U, 2U, 3U, 0U, 1U}) {
      if (block == 2) {
        static_cast<void>(streamer.acquire(block));
      } else {
        expect_intact(pack, streamer, block);
      }
    }
  };
  pack.flip_bit(extent, extent.stored_bytes - 1);  // In the padding, where no tensor shows it.
  run_until_seen();
  const Result<BlockLease> lease = streamer.acquire(2);
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().code(), ErrorCode::kMismatch);
  EXPECT_EQ(lease.error().message(), "extent \"layers.2\" of " + pack.shard_path(extent).string() +
                                         " differs from its checksum");
  expect_intact(pack, streamer, 3);
  pack.flip_bit(extent, extent.stored_bytes - 1);  // Mended: served again.
  run_until_seen();
  expect_intact(pack, streamer, 2);
}

TEST(StreamerFaults, FlippedBitOfARamBlockIsFoundInTheFirstPass) {
  const StreamPack pack({.tiers = {kR, kR, kR}});
  pack.flip_bit(pack.extent("layers.1"), 0);
  Streamer streamer = must(Streamer::open(pack.path(), full_verification()));
  expect_intact(pack, streamer, 0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Result<BlockLease> lease = streamer.acquire(1);
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error().code(), ErrorCode::kMismatch);
    EXPECT_THAT(lease.error().message(), HasSubstr("layers.1"));
  }
  expect_intact(pack, streamer, 2);
  EXPECT_EQ(streamer.stats().mispredict_count, 1U);
}

TEST(StreamerFaults, WithoutFullVerificationExtentsAreNotChecked) {
  const StreamPack pack({.tiers = {kD}});
  const format::PackedExtent& extent = pack.extent("layers.0");
  pack.flip_bit(extent, extent.stored_bytes - 1);
  Streamer streamer = must(Streamer::open(pack.path(), stream_options()));
  expect_intact(pack, streamer, 0);
}

TEST(StreamerFaults, FlippedBitInTheBaseIsFoundAtOpen) {
  const StreamPack pack({.tiers = {kD}});
  pack.flip_bit(pack.extent("base"), 3);
  const Result<Streamer> streamer = Streamer::open(pack.path(), full_verification());
  ASSERT_FALSE(streamer);
  EXPECT_EQ(streamer.error().code(), ErrorCode::kMismatch);
  EXPECT_THAT(streamer.error().message(), HasSubstr("extent \"base\" of "));
  EXPECT_TRUE(Streamer::open(pack.path(), stream_options()));
}

TEST(StreamerFaults, FlippedBitInAHeaderIsFoundAtOpenInBothModes) {
  const StreamPack pack({.tiers = {kD}});
  const format::PackedExtent& extent = pack.extent("layers.0");
  pack.flip_bit(extent, std::uint64_t{0} - extent.offset_bytes + 9);  // Byte 9 of the file.
  for (const VerifyMode mode : {VerifyMode::kHeaders, VerifyMode::kFull}) {
    StreamOptions options = stream_options();
    options.verify = mode;
    const Result<Streamer> streamer = Streamer::open(pack.path(), options);
    ASSERT_FALSE(streamer);
    EXPECT_EQ(streamer.error().code(), ErrorCode::kMismatch);
    EXPECT_EQ(streamer.error().message(),
              "the header of " + pack.shard_path(extent).string() + " differs from its checksum");
  }
}

TEST(StreamerFaults, ShardTruncatedAfterOpeningFailsEachBlockAndRecovers) {
  const StreamPack pack({.tiers = {kD, kD, kD, kD, kD, kD}});
  const std::filesystem::path shard = pack.shard_path(pack.extent("layers.0"));
  const std::string whole = read_text(shard);
  StreamOptions options = stream_options();
  options.lookahead_bytes = 1;
  options.compute_dtype = Dtype::kBf16;
  Streamer streamer = must(Streamer::open(pack.path(), options));
  must(streamer.acquire(0));
  must(streamer.acquire(1));
  std::filesystem::resize_file(shard, pack.extent("layers.3").offset_bytes + 4096);
  must(streamer.acquire(2));
  for (int pass = 0; pass < 2; ++pass) {
    for (const std::size_t block : {4U, 5U}) {
      const Result<BlockLease> lease = streamer.acquire(block);
      ASSERT_FALSE(lease) << "pass " << pass << " block " << block;
      EXPECT_EQ(lease.error().code(), ErrorCode::kCorrupt);
      EXPECT_EQ(lease.error().reason(), "truncated");
      EXPECT_THAT(lease.error().message(),
                  HasSubstr("loading extent \"" + StreamPack::block_name(block) + "\": "));
      EXPECT_THAT(lease.error().message(), HasSubstr(shard.string()));
    }
  }
  {
    // The same file again: writing in place keeps the open descriptor's file.
    std::fstream file(shard, std::ios::binary | std::ios::in | std::ios::out);
    file.write(whole.data(), static_cast<std::streamsize>(whole.size()));
  }
  for (std::size_t block = 0; block < 6; ++block) {
    const BlockLease lease = must(streamer.acquire(block));
    const std::string name = StreamPack::block_name(block) + ".attention.weight";
    EXPECT_EQ(bytes_of_tensor(lease, name), pack.expected(name, std::nullopt).at(name).bytes);
  }
}

/// Reads that fail are told to who asks for their block, each time, and no other block is harmed.
TEST(StreamerFaults, DiskThatBreaksFailsBlocksUntilItIsMended) {
  // Of the disk of faulty_disk.cpp, where this program runs on it.
  auto* break_disk = reinterpret_cast<void (*)(bool)>(::dlsym(RTLD_DEFAULT, "tp_test_break_disk"));
  const char* disk = std::getenv("TP_TEST_DISK");
  if (break_disk == nullptr || disk == nullptr || std::string_view(disk) != "broken") {
    GTEST_SKIP() << "the disk can't be broken";
  }
  const StreamPack pack({.tiers = {kD, kR, kD, kD, kR, kD}, .extra_bytes_of_block_1 = 9'000'000});
  for (const std::optional<Dtype> compute : {std::optional<Dtype>(), std::optional(Dtype::kF32)}) {
    StreamOptions options = stream_options();
    options.compute_dtype = compute;
    Streamer streamer = must(Streamer::open(pack.path(), options));
    break_disk(true);
    int failed_count = 0;
    for (int step = 0; step < 60; ++step) {
      const auto block = static_cast<std::size_t>(step) % pack.block_count();
      const Result<BlockLease> lease = streamer.acquire(block);
      if (lease) {
        const std::string name = StreamPack::block_name(block) + ".attention.weight";
        EXPECT_EQ(bytes_of_tensor(*lease, name), pack.expected(name, compute).at(name).bytes);
        continue;
      }
      ++failed_count;
      EXPECT_EQ(lease.error().code(), ErrorCode::kFailed);
      EXPECT_EQ(lease.error().errno_value(), EIO);
      EXPECT_THAT(lease.error().message(), HasSubstr(StreamPack::block_name(block)));
    }
    EXPECT_GT(failed_count, 0);
    break_disk(false);
    for (std::size_t step = 0; step < 2 * pack.block_count(); ++step) {
      // What was read ahead of the mending may still fail, once.
      static_cast<void>(streamer.acquire(step % pack.block_count()));
    }
    for (std::size_t block = 0; block < pack.block_count(); ++block) {
      const std::string name = StreamPack::block_name(block) + ".attention.weight";
      const BlockLease lease = must(streamer.acquire(block));
      EXPECT_EQ(bytes_of_tensor(lease, name), pack.expected(name, compute).at(name).bytes);
    }
  }
}

TEST(StreamerFaults, MissingPackAndMissingShard) {
  const StreamPack pack({.tiers = {kD}});
  EXPECT_EQ(Streamer::open(pack.path() / "nowhere", stream_options()).error().code(),
            ErrorCode::kMissing);
  std::filesystem::remove(pack.shard_path(pack.extent("layers.0")));
  EXPECT_EQ(Streamer::open(pack.path(), stream_options()).error().code(), ErrorCode::kCorrupt);
}

TEST(StreamerFaults, DestroyingWithReadsInFlight) {
  const StreamPack pack({.tiers = {kD, kD, kR, kD, kR}, .extra_bytes_of_block_1 = 20'000'000});
  for (int round = 0; round < 20; ++round) {
    Streamer streamer = must(Streamer::open(pack.path(), stream_options()));
    if (round % 3 == 1) {
      must(streamer.acquire(0));
    }
    if (round % 3 == 2) {
      must(streamer.acquire(3));  // A jump: a read of block 1 may be waited for, others queued.
    }
  }
}

TEST(StreamerFaults, LeaseOutlivesItsStreamer) {
  const StreamPack pack({.tiers = {kD, kD}});
  BlockLease lease;
  {
    Streamer streamer = must(Streamer::open(pack.path(), stream_options()));
    lease = must(streamer.acquire(0));
  }
  const std::string name = "layers.0.attention.weight";
  EXPECT_EQ(bytes_of_tensor(lease, name), pack.expected(name, std::nullopt).at(name).bytes);
  lease.release();
  lease.release();
}

TEST(StreamerFaults, MovingAStreamerKeepsItsLeases) {
  const StreamPack pack({.tiers = {kD, kD}});
  Streamer first = must(Streamer::open(pack.path(), stream_options()));
  const BlockLease lease = must(first.acquire(0));
  Streamer second = std::move(first);
  expect_intact(pack, second, 1);
  const std::string name = "layers.0.attention.weight";
  EXPECT_EQ(bytes_of_tensor(lease, name), pack.expected(name, std::nullopt).at(name).bytes);
}

TEST(StreamerFaults, LeasesEndOnOtherThreads) {
  const StreamPack pack({.tiers = {kD, kR, kD, kD, kD, kR}});
  StreamOptions options = stream_options();
  options.compute_dtype = Dtype::kBf16;
  options.lookahead_bytes = 3 * pack.extent("layers.0").stored_bytes;
  Streamer streamer = must(Streamer::open(pack.path(), options));
  for (int step = 0; step < 120; ++step) {
    const auto block = static_cast<std::size_t>(step) % pack.block_count();
    BlockLease lease = must(streamer.acquire(block));
    std::thread releaser([held = std::move(lease)]() mutable { held.release(); });
    static_cast<void>(streamer.stats());
    releaser.join();
  }
  EXPECT_EQ(streamer.stats().mispredict_count, 0U);
}

std::ptrdiff_t entry_count(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder),
                       std::filesystem::directory_iterator());
}

std::uint64_t resident_pages() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t mapped = 0;
  std::uint64_t resident = 0;
  statm >> mapped >> resident;
  return resident;
}

TEST(StreamerFaults, OpeningAndClosingLeavesNothing) {
  const StreamPack pack({.tiers = {kD, kD, kR}, .extra_bytes_of_block_1 = 2'000'000});
  StreamOptions options = stream_options();
  options.compute_dtype = Dtype::kBf16;
  const auto run_once = [&] {
    Streamer streamer = must(Streamer::open(pack.path(), options));
    for (std::size_t block = 0; block < pack.block_count(); ++block) {
      must(streamer.acquire(block));
    }
  };
  for (int cycle = 0; cycle < 3; ++cycle) {
    run_once();
  }
  const std::ptrdiff_t descriptors = entry_count("/proc/self/fd");
  const std::ptrdiff_t threads = entry_count("/proc/self/task");
  const std::uint64_t pages = resident_pages();
  for (int cycle = 3; cycle < 100; ++cycle) {
    run_once();
  }
  EXPECT_EQ(entry_count("/proc/self/fd"), descriptors);
  EXPECT_EQ(entry_count("/proc/self/task"), threads);
  // A slot has 500 pages: kept in each cycle, slots would be 48,000. What a sanitizer keeps of
  // freed memory is less.
  EXPECT_LT(resident_pages(), pages + 20'000);
}

TEST(StreamerFaults, StopEndsWhatWaitsAndEverythingAfter) {
  const StreamPack pack({.tiers = {kD, kR, kD, kD}});
  std::atomic<bool> stop = false;
  StreamOptions options = stream_options();
  options.stop = &stop;
  Streamer streamer = must(Streamer::open(pack.path(), options));
  expect_intact(pack, streamer, 0);
  // Whatever the streamer is doing: reading, waiting or between blocks.
  std::jthread stopping([&stop] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop = true;
  });
  std::optional<Error> error;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (std::size_t block = 0; !error && std::chrono::steady_clock::now() < deadline; ++block) {
    if (Result<BlockLease> lease = streamer.acquire(block % 4); !lease) {
      error = std::move(lease).error();
    }
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kInterrupted) << error->to_string();
  stop = false;  // It may have ended its reading for good, or not.
  const Result<BlockLease> after = streamer.acquire(0);
  EXPECT_TRUE(after || after.error().code() == ErrorCode::kInterrupted);
}

TEST(StreamerFaults, StopBeforeOpeningReadsNothingButWhatIsThere) {
  const StreamPack pack({.tiers = {kD, kR, kD, kD}});
  const std::atomic<bool> stop = true;
  StreamOptions options = stream_options();
  options.stop = &stop;
  Result<Streamer> streamer = Streamer::open(pack.path(), options);
  // A base that came in at once is no reason to fail.
  const Error error = streamer ? streamer->acquire(0).error() : streamer.error();
  EXPECT_EQ(error.code(), ErrorCode::kInterrupted) << error.to_string();
}

TEST(StreamerFaults, ATierIsWhatABlockIsTreatedAs) {
  const StreamPack pack({.tiers = {kD, kR, kD, kR}});
  StreamOptions options = stream_options();
  options.tiers = {Tier::kGpu, kD, kD, kR};
  const Streamer streamer = must(Streamer::open(pack.path(), options));
  EXPECT_EQ(streamer.tier(0), kR) << "there is no GPU";
  EXPECT_EQ(streamer.tier(1), kD);
  EXPECT_EQ(streamer.tier(2), kD);
  EXPECT_EQ(streamer.tier(3), kR);
}

}  // namespace
}  // namespace trash_panda::runtime
