#include "chunk_pipeline.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

namespace trash_panda::format {
namespace {

constexpr std::size_t kChunkCount = 200;

ChunkPipelineOptions options(std::size_t buffer_count, unsigned thread_count) {
  return {.buffer_bytes = 4096, .buffer_count = buffer_count, .thread_count = thread_count};
}

/// Fills a chunk with its number, some of them late.
Result<std::span<const std::byte>> fill_number(std::size_t i, std::span<std::byte> buffer) {
  if (i % 7 == 0) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  buffer[0] = static_cast<std::byte>(i);
  return buffer.first(1);
}

Result<void> run_one_stage(std::size_t chunk_count, const ChunkPipelineOptions& options,
                           const ChunkFill& fill, ChunkUse use) {
  return run_chunk_pipeline(chunk_count, options, fill, {std::move(use)});
}

class RunChunkPipeline : public ::testing::TestWithParam<std::tuple<std::size_t, unsigned>> {};

TEST_P(RunChunkPipeline, HandsOverEveryChunkInOrder) {
  const auto [buffer_count, thread_count] = GetParam();
  std::size_t next = 0;
  const Result<void> result =
      run_one_stage(kChunkCount, options(buffer_count, thread_count), fill_number,
                    [&](std::size_t i, std::span<const std::byte> bytes) -> Result<void> {
                      EXPECT_EQ(i, next++);
                      EXPECT_EQ(bytes[0], static_cast<std::byte>(i));
                      return {};
                    });
  EXPECT_TRUE(result);
  EXPECT_EQ(next, kChunkCount);
}

TEST_P(RunChunkPipeline, PassesEveryChunkFromStageToStageInOrder) {
  const auto [buffer_count, thread_count] = GetParam();
  std::vector<std::size_t> seen(3, 0);
  std::vector<ChunkUse> stages;
  for (std::size_t stage = 0; stage < seen.size(); ++stage) {
    stages.emplace_back([&seen, stage](std::size_t i, std::span<const std::byte> bytes) {
      EXPECT_EQ(i, seen[stage]);
      EXPECT_EQ(bytes[0], static_cast<std::byte>(i));
      ++seen[stage];
      return Result<void>();
    });
  }
  ASSERT_TRUE(
      run_chunk_pipeline(kChunkCount, options(buffer_count, thread_count), fill_number, stages));
  EXPECT_THAT(seen, ::testing::Each(kChunkCount));
}

TEST(RunChunkPipelineErrors, ReturnsTheErrorOfAnEarlierStageAtItsChunk) {
  std::size_t used = 0;
  const auto fail_at_7 = [](std::size_t i, std::span<const std::byte>) -> Result<void> {
    if (i >= 7) {
      return std::unexpected(Error(ErrorCode::kFailed, std::to_string(i)));
    }
    return {};
  };
  const auto count = [&](std::size_t, std::span<const std::byte>) -> Result<void> {
    ++used;
    return {};
  };
  const Result<void> result =
      run_chunk_pipeline(kChunkCount, options(4, 2), fill_number, {fail_at_7, count});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), "7");
  EXPECT_EQ(used, 7U);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RunChunkPipeline,
                         ::testing::Combine(::testing::Values(1U, 2U, 3U, 300U),
                                            ::testing::Values(1U, 2U, 5U)));

TEST(RunChunkPipelineErrors, ReturnsTheFirstErrorInChunkOrder) {
  std::size_t used = 0;
  const Result<void> result = run_one_stage(
      kChunkCount, options(4, 3),
      [](std::size_t i, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
        if (i == 20 || i == 21) {
          // The later one fails sooner.
          std::this_thread::sleep_for(std::chrono::milliseconds(i == 20 ? 20 : 0));
          return std::unexpected(Error(ErrorCode::kFailed, std::to_string(i)));
        }
        return fill_number(i, buffer);
      },
      [&](std::size_t, std::span<const std::byte>) -> Result<void> {
        ++used;
        return {};
      });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), "20");
  EXPECT_EQ(used, 20U);
}

TEST(RunChunkPipelineErrors, EndsWhenTheConsumerFails) {
  const Result<void> result =
      run_one_stage(kChunkCount, options(2, 4), fill_number,
                    [](std::size_t i, std::span<const std::byte>) -> Result<void> {
                      if (i == 5) {
                        return std::unexpected(Error(ErrorCode::kOutput, "full"));
                      }
                      return {};
                    });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), "full");
}

/// Makes threads that ask for no stack size ask for one that no system has.
class NoNewThreads {
 public:
  NoNewThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge = {};
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
    EXPECT_EQ(::pthread_setattr_default_np(&huge), 0);
    ::pthread_attr_destroy(&huge);
  }
  NoNewThreads(const NoNewThreads&) = delete;
  NoNewThreads& operator=(const NoNewThreads&) = delete;
  ~NoNewThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_ = {};
};

TEST(RunChunkPipelineErrors, SaysThatTheSystemHasNoThreads) {
  const NoNewThreads no_new_threads;
  const Result<void> result =
      run_one_stage(kChunkCount, options(2, 2), fill_number,
                    [](std::size_t, std::span<const std::byte>) -> Result<void> { return {}; });
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message(), ::testing::HasSubstr("can't start thread 1 of 2"));
}

TEST(RunChunkPipelineErrors, StopsBeforeTheNextChunk) {
  std::atomic<bool> stop = false;
  ChunkPipelineOptions stoppable = options(2, 2);
  stoppable.stop = &stop;
  std::size_t used = 0;
  const Result<void> result =
      run_one_stage(kChunkCount, stoppable, fill_number,
                    [&](std::size_t, std::span<const std::byte>) -> Result<void> {
                      stop = ++used == 3;
                      return {};
                    });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kInterrupted);
  EXPECT_EQ(used, 3U);
}

TEST(RunChunkPipelineErrors, DoesNothingForNoChunks) {
  EXPECT_TRUE(
      run_one_stage(0, options(1, 1), fill_number,
                    [](std::size_t, std::span<const std::byte>) -> Result<void> { return {}; }));
}

}  // namespace
}  // namespace trash_panda::format
