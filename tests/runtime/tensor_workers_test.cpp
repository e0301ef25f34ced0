#include "tensor_workers.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tensor_maker.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;

/// An extent of BF16 tensors, of 1 to 60,000 elements, that become F32.
class WideningSample {
 public:
  WideningSample() {
    for (std::uint64_t count = 1; count <= 60'000; count = count * 5 / 2 + 1) {
      tensors_.push_back({.name = "t",
                          .dtype = Dtype::kBf16,
                          .shape = {count},
                          .offset_bytes = stored_.size() * 2,
                          .size_bytes = count * 2,
                          .scale = {},
                          .stored_offset_bytes = stored_.size() * 2,
                          .stored_bytes = count * 2});
      for (std::uint64_t at = 0; at < count; ++at) {
        stored_.push_back(static_cast<std::uint16_t>(0x3f80U + at % 100));
      }
    }
    for (const format::PackedTensor& tensor : tensors_) {
      layout_.steps.push_back({.stored = &tensor,
                               .scale = nullptr,
                               .dtype = Dtype::kF32,
                               .size_bytes = tensor.size_bytes * 2,
                               .is_in_place = false,
                               .compute_offset_bytes = layout_.compute_bytes});
      layout_.compute_bytes += tensor.size_bytes * 2;
    }
    compute_.resize(stored_.size());
  }

  Result<void> begin(TensorMaker& maker) {
    std::ranges::fill(compute_, 0xffffffffU);
    return maker.begin(layout_, std::as_writable_bytes(std::span(stored_)),
                       std::as_writable_bytes(std::span(compute_)));
  }
  [[nodiscard]] bool is_made() const {
    for (std::size_t at = 0; at < stored_.size(); ++at) {
      if (compute_[at] != std::uint32_t{stored_[at]} << 16U) {
        return false;
      }
    }
    return true;
  }

 private:
  std::vector<format::PackedTensor> tensors_;
  TensorLayout layout_;
  std::vector<std::uint16_t> stored_;
  std::vector<std::uint32_t> compute_;
};

TEST(TensorMaker, MakesAllHoweverManyThreadsWork) {
  WideningSample sample;
  for (const std::size_t thread_count : {0U, 1U, 7U}) {
    TensorMaker maker;
    TensorWorkers workers(thread_count, {});
    EXPECT_EQ(workers.thread_count(), thread_count);
    TensorMaker::Scratch scratch;
    for (int round = 0; round < 50; ++round) {
      ASSERT_TRUE(sample.begin(maker));
      workers.help(maker);
      ASSERT_TRUE(maker.finish(scratch));
      ASSERT_TRUE(sample.is_made());
      EXPECT_LE(maker.times().began, maker.times().ended);
    }
  }
}

TEST(TensorMaker, LeavesUndoneWhatWasGivenUp) {
  WideningSample sample;
  TensorMaker maker;
  TensorMaker::Scratch scratch;
  ASSERT_TRUE(sample.begin(maker));
  maker.give_up();
  ASSERT_TRUE(maker.finish(scratch));
  EXPECT_FALSE(sample.is_made());
  TensorWorkers workers(3, {});
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(sample.begin(maker));
    workers.help(maker);
    maker.give_up();  // While others work, or before, or after.
    ASSERT_TRUE(sample.begin(maker));
    ASSERT_TRUE(maker.finish(scratch));
    ASSERT_TRUE(sample.is_made());
  }
}

TEST(TensorWorkers, AnswerACallEvenWhileTheyAreCalledAgain) {
  std::mutex mutex;
  std::condition_variable answered;
  int answer_count = 0;
  TensorWorkers workers(2, [&] {
    const std::lock_guard lock(mutex);
    ++answer_count;
    answered.notify_all();
  });
  for (int call = 1; call <= 20; ++call) {
    std::unique_lock lock(mutex);
    const int before = answer_count;
    lock.unlock();
    workers.call();
    lock.lock();
    answered.wait(lock, [&] { return answer_count > before; });  // Else this test hangs.
  }
  workers.stop();
  workers.call();
  EXPECT_LE(answer_count, 21);
}

}  // namespace
}  // namespace trash_panda::runtime
