#include "trash_panda/runtime/io_engine.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/aligned_buffer.h"

#include "format/support/checkpoint_builder.h"
#include "uring_engine.h"

namespace trash_panda::runtime {
namespace {

using ::testing::HasSubstr;

/// Makes an engine; the suite below is the contract that each of them keeps.
using EngineFactory = std::function<Result<std::unique_ptr<IoEngine>>(IoOptions options)>;

struct EngineCase {
  std::string name;
  EngineFactory make;
  ReadMode mode;
};

std::vector<std::byte> pattern(std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  std::uint32_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

/// Results of many reads, waited for together.
class Collector {
 public:
  std::function<void(Result<void>)> expect_one() {
    const std::lock_guard lock(mutex_);
    ++expected_;
    return [this](Result<void> result) {
      const std::lock_guard done_lock(mutex_);
      results_.push_back(std::move(result));
      arrived_.notify_all();
    };
  }

  std::vector<Result<void>> wait() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return results_.size() >= expected_; });
    return results_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::size_t expected_ = 0;
  std::vector<Result<void>> results_;
};

class IoEngineContract : public ::testing::TestWithParam<EngineCase> {
 protected:
  void SetUp() override {
    const auto engine = GetParam().make({});
    if (!engine && engine.error().code() == ErrorCode::kDevice) {
      GTEST_SKIP() << engine.error().to_string();
    }
  }

  /// Writes a file of the pattern and opens it in the mode of the case.
  File open_pattern(std::size_t size_bytes) {
    expected_ = pattern(size_bytes);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(expected_.data()),
               static_cast<std::streamsize>(size_bytes));
    auto file = File::open(path_, GetParam().mode);
    EXPECT_TRUE(file) << file.error().message();
    return *std::move(file);
  }

  /// @param options  What is registered, where the engine can.
  [[nodiscard]] static std::unique_ptr<IoEngine> make_engine(IoOptions options = {}) {
    auto engine = GetParam().make(std::move(options));
    EXPECT_TRUE(engine) << engine.error().message();
    return *std::move(engine);
  }

  trash_panda::testing::TempDir folder_;
  std::filesystem::path path_ = folder_ / "data.bin";
  std::vector<std::byte> expected_;
  Collector collector_;  ///< Outlives the engine of a test, whose threads call it.
};

struct Range {
  std::uint64_t offset_bytes;
  std::uint64_t size_bytes;
};

TEST_P(IoEngineContract, ReadsEveryAlignmentAndSize) {
  constexpr std::size_t kFileBytes = 3 * 1024 * 1024;
  const File file = open_pattern(kFileBytes);
  std::vector<Range> ranges = {
      {0, 4096}, {4096, 8192}, {kFileBytes - 4096, 4096}, {0, kFileBytes}, {8192, 1024 * 1024}};
  if (file.mode() == ReadMode::kBuffered) {
    for (const std::uint64_t offset_bytes : {1U, 3U, 511U, 513U, 4095U, 4097U}) {
      for (const std::uint64_t size_bytes : {1U, 2U, 7U, 511U, 512U, 513U, 4097U, 1048577U}) {
        ranges.push_back({offset_bytes, size_bytes});
      }
    }
  }
  auto engine = make_engine();
  std::deque<AlignedBuffer> buffers;
  std::vector<std::span<std::byte>> targets;
  for (const Range& range : ranges) {
    buffers.push_back(*AlignedBuffer::create(range.size_bytes));
    targets.push_back(buffers.back().span().first(range.size_bytes));
    engine->submit({&file, range.offset_bytes, targets.back(), collector_.expect_one()});
  }
  for (const Result<void>& result : collector_.wait()) {
    EXPECT_TRUE(result) << result.error().message();
  }
  for (std::size_t at = 0; at < ranges.size(); ++at) {
    const auto from = expected_.begin() + static_cast<std::ptrdiff_t>(ranges[at].offset_bytes);
    EXPECT_TRUE(std::equal(targets[at].begin(), targets[at].end(), from))
        << ranges[at].size_bytes << " bytes at " << ranges[at].offset_bytes;
  }
}

TEST_P(IoEngineContract, ReadsManyPiecesIntoOneBuffer) {
  constexpr std::size_t kPieceBytes = 4096;
  constexpr std::size_t kPieces = 512;
  const File file = open_pattern(kPieces * kPieceBytes);
  const AlignedBuffer buffer = *AlignedBuffer::create(kPieces * kPieceBytes);
  // Half of the memory is known beforehand; both halves work.
  auto engine = make_engine({.files = {&file}, .memory = {buffer.span().first(1024 * 1024)}});
  for (std::size_t piece = 0; piece < kPieces; ++piece) {
    engine->submit({&file, piece * kPieceBytes,
                    buffer.span().subspan(piece * kPieceBytes, kPieceBytes),
                    collector_.expect_one()});
  }
  EXPECT_EQ(collector_.wait().size(), kPieces);
  EXPECT_TRUE(std::ranges::equal(buffer.span(), expected_));
}

TEST_P(IoEngineContract, ReadsNothingSuccessfully) {
  const File file = open_pattern(4096);
  auto engine = make_engine();
  engine->submit({&file, 0, {}, collector_.expect_one()});
  EXPECT_TRUE(collector_.wait().front());
}

TEST_P(IoEngineContract, ReadsFromSeveralFilesAtOnce) {
  const File first = open_pattern(64 * 4096);
  const std::vector<std::byte> expected = expected_;
  path_ = folder_ / "second.bin";
  const File second = open_pattern(64 * 4096);
  auto engine = make_engine({.files = {&second}});
  const AlignedBuffer buffer = *AlignedBuffer::create(128 * 4096);
  for (std::size_t page = 0; page < 64; ++page) {
    engine->submit(
        {&first, page * 4096, buffer.span().subspan(page * 4096, 4096), collector_.expect_one()});
    engine->submit({&second, page * 4096, buffer.span().subspan((64 + page) * 4096, 4096),
                    collector_.expect_one()});
  }
  collector_.wait();
  EXPECT_TRUE(std::ranges::equal(buffer.span().first(64 * 4096), expected));
  EXPECT_TRUE(std::ranges::equal(buffer.span().last(64 * 4096), expected_));
}

TEST_P(IoEngineContract, EndOfFileInsideTheRangeIsTruncated) {
  const File file = open_pattern(2 * 4096);
  auto engine = make_engine();
  const AlignedBuffer buffer = *AlignedBuffer::create(2 * 4096);
  engine->submit({&file, 4096, buffer.span(), collector_.expect_one()});
  const Result<void> result = collector_.wait().front();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(result.error().reason(), "truncated");
  EXPECT_EQ(result.error().message(),
            printable(path_) + " ends at 8192 bytes, but 8192 bytes at 4096 are needed");
}

TEST_P(IoEngineContract, FileThatShrankIsTruncated) {
  const File file = open_pattern(16 * 4096);
  std::filesystem::resize_file(path_, 4096);
  auto engine = make_engine();
  const AlignedBuffer buffer = *AlignedBuffer::create(16 * 4096);
  engine->submit({&file, 0, buffer.span(), collector_.expect_one()});
  const Result<void> result = collector_.wait().front();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().reason(), "truncated");
}

TEST_P(IoEngineContract, RefusedReadNamesOffsetBytesAndCause) {
  const File closed;  // Its descriptor is -1: the system refuses with EBADF.
  auto engine = make_engine();
  const AlignedBuffer buffer = *AlignedBuffer::create(4096);
  engine->submit({&closed, 12288, buffer.span(), collector_.expect_one()});
  const Result<void> result = collector_.wait().front();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kFailed);
  EXPECT_THAT(result.error().message(), HasSubstr("4096 bytes at 12288"));
  EXPECT_THAT(result.error().message(), HasSubstr("Bad file descriptor"));
}

TEST_P(IoEngineContract, FailedReadDoesNotDisturbOthers) {
  const File file = open_pattern(32 * 4096);
  auto engine = make_engine();
  const AlignedBuffer buffer = *AlignedBuffer::create(33 * 4096);
  for (std::size_t page = 0; page < 33; ++page) {
    engine->submit(
        {&file, page * 4096, buffer.span().subspan(page * 4096, 4096), collector_.expect_one()});
  }
  const std::vector<Result<void>> results = collector_.wait();
  EXPECT_EQ(std::ranges::count_if(results, [](const auto& result) { return !result; }), 1);
  EXPECT_TRUE(std::ranges::equal(buffer.span().first(32 * 4096), expected_));
}

TEST_P(IoEngineContract, DestroyingCompletesEveryReadOnce) {
  constexpr std::size_t kReads = 2000;
  const File file = open_pattern(256 * 4096);
  const AlignedBuffer buffer = *AlignedBuffer::create(kReads * 4096);
  std::atomic<std::size_t> done = 0;
  std::atomic<std::size_t> given_up = 0;
  auto engine = make_engine();
  for (std::size_t at = 0; at < kReads; ++at) {
    const std::size_t page = at % 256;
    engine->submit({&file, page * 4096, buffer.span().subspan(at * 4096, 4096),
                    [&](const Result<void>& result) {
                      if (result) {
                        ++done;
                      } else if (result.error().code() == ErrorCode::kInterrupted) {
                        ++given_up;
                      }
                    }});
  }
  engine.reset();
  EXPECT_EQ(done + given_up, kReads);
}

TEST_P(IoEngineContract, DestroyingGivesUpWhatHasNotBegun) {
  constexpr std::size_t kBlockers = 64;
  const File file = open_pattern(4096);
  const AlignedBuffer buffer = *AlignedBuffer::create(kBlockers * 4096);
  // The first completions hold every thread until the engine is being destroyed.
  std::atomic<bool> is_closing = false;
  std::atomic<std::size_t> given_up = 0;
  auto engine = make_engine();
  for (std::size_t at = 0; at < kBlockers; ++at) {
    engine->submit(
        {&file, 0, buffer.span().subspan(at * 4096, 4096), [&](const Result<void>& result) {
           while (!is_closing) {
             std::this_thread::yield();
           }
           given_up += !result && result.error().code() == ErrorCode::kInterrupted;
         }});
  }
  std::thread closer([&] { engine.reset(); });
  // The destructor can't return before the flag is set; it only needs to have begun.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  is_closing = true;
  closer.join();
  EXPECT_GT(given_up, 0U);
}

TEST_P(IoEngineContract, CompletionMaySubmitTheNextRead) {
  const File file = open_pattern(8 * 4096);
  const AlignedBuffer buffer = *AlignedBuffer::create(8 * 4096);
  auto engine = make_engine();
  std::vector<std::function<void(Result<void>)>> last = {collector_.expect_one()};
  std::function<void(std::size_t)> read_page = [&](std::size_t page) {
    engine->submit({&file, page * 4096, buffer.span().subspan(page * 4096, 4096),
                    [&, page](Result<void> result) {
                      if (result && page + 1 < 8) {
                        read_page(page + 1);
                      } else {
                        last.front()(std::move(result));
                      }
                    }});
  };
  read_page(0);
  EXPECT_TRUE(collector_.wait().front());
  engine.reset();  // Before what its threads may still be leaving.
  EXPECT_TRUE(std::ranges::equal(buffer.span(), expected_));
}

EngineFactory pread_engine(unsigned thread_count) {
  return [thread_count](const IoOptions&) { return make_pread_engine(thread_count); };
}

/// @param filter  Made anew for each engine, as it may count.
EngineFactory uring_engine(std::uint32_t depth,
                           const std::function<ReadResultFilter()>& filter = {}) {
  return [depth, filter](IoOptions options) {
    options.depth = depth;
    return make_uring_engine(options, filter ? filter() : ReadResultFilter());
  };
}

/// Half of what was asked, in whole pages.
ReadResultFilter half_reads() {
  return [](std::int32_t result) {
    constexpr std::int32_t kPageBytes = 4096;
    return result > kPageBytes ? std::max(result / 2 / kPageBytes, 1) * kPageBytes : result;
  };
}

/// Every other read fails in a way that passes.
ReadResultFilter passing_error(int errno_value) {
  return [errno_value, calls = 0](std::int32_t result) mutable {
    return calls++ % 2 == 0 ? -errno_value : result;
  };
}

INSTANTIATE_TEST_SUITE_P(
    Engines, IoEngineContract,
    ::testing::Values(EngineCase{"Pread1Buffered", pread_engine(1), ReadMode::kBuffered},
                      EngineCase{"Pread4Buffered", pread_engine(4), ReadMode::kBuffered},
                      EngineCase{"Pread1Direct", pread_engine(1), ReadMode::kDirect},
                      EngineCase{"Pread4Direct", pread_engine(4), ReadMode::kDirect},
                      EngineCase{"Uring1Buffered", uring_engine(1), ReadMode::kBuffered},
                      EngineCase{"Uring16Buffered", uring_engine(16), ReadMode::kBuffered},
                      EngineCase{"Uring1Direct", uring_engine(1), ReadMode::kDirect},
                      EngineCase{"Uring16Direct", uring_engine(16), ReadMode::kDirect},
                      EngineCase{"UringHalfReads", uring_engine(4, half_reads), ReadMode::kDirect},
                      EngineCase{"UringInterrupted",
                                 uring_engine(4, [] { return passing_error(EINTR); }),
                                 ReadMode::kDirect},
                      EngineCase{"UringTryAgain",
                                 uring_engine(4, [] { return passing_error(EAGAIN); }),
                                 ReadMode::kBuffered}),
    [](const auto& tested) { return tested.param.name; });

TEST(MakePreadEngine, SaysWhatItIs) {
  EXPECT_EQ((*make_pread_engine(3))->description(), "pread x3");
}

TEST(MakePreadEngine, RefusesZeroAndTooManyThreads) {
  for (const unsigned count : {0U, 257U}) {
    const auto engine = make_pread_engine(count);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code(), ErrorCode::kUsage);
    EXPECT_EQ(engine.error().to_string(),
              std::to_string(count) + " read threads were asked for; 1 to 256 are possible");
  }
}

TEST(ParseIoBackend, KnowsThreeNames) {
  EXPECT_EQ(parse_io_backend("auto"), IoBackend::kAuto);
  EXPECT_EQ(parse_io_backend("io_uring"), IoBackend::kUring);
  EXPECT_EQ(parse_io_backend("pread"), IoBackend::kPread);
  const auto other = parse_io_backend("uring");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), ErrorCode::kUsage);
  EXPECT_EQ(other.error().to_string(),
            "there is no I/O engine \"uring\"; engines are auto, io_uring and pread");
}

TEST(MakeIoEngine, MakesThePreadEngineWhenAskedFor) {
  const auto engine = make_io_engine({.backend = IoBackend::kPread, .depth = 2});
  ASSERT_TRUE(engine);
  EXPECT_EQ((*engine)->description(), "pread x2");
}

TEST(MakeIoEngine, RefusesZeroAndTooManyReadsInFlight) {
  for (const IoBackend backend : {IoBackend::kAuto, IoBackend::kUring, IoBackend::kPread}) {
    for (const std::uint32_t depth : {0U, kReadDepthMax + 1}) {
      const auto engine = make_io_engine({.backend = backend, .depth = depth});
      ASSERT_FALSE(engine);
      EXPECT_EQ(engine.error().code(), ErrorCode::kUsage);
    }
  }
}

}  // namespace
}  // namespace trash_panda::runtime
