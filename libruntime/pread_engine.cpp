#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/runtime/io_engine.h"

#include "io_given_up.h"

namespace trash_panda::runtime {

namespace {

class PreadEngine final : public IoEngine {
 public:
  PreadEngine() = default;
  PreadEngine(const PreadEngine&) = delete;
  PreadEngine& operator=(const PreadEngine&) = delete;

  ~PreadEngine() override {
    {
      const std::lock_guard lock(mutex_);
      is_closing_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  Result<void> start(unsigned thread_count) {
    threads_.reserve(thread_count);
    // std::thread reports the system's refusal (thread limit, memory) by an exception only.
    try {
      while (threads_.size() < thread_count) {
        threads_.emplace_back([this] { run(); });
      }
    } catch (const std::system_error& refused) {
      return std::unexpected(Error::from_errno(
          refused.code().value(),
          fmt::format("can't start read thread {} of {}", threads_.size() + 1, thread_count)));
    }
    return {};
  }

  void submit(ReadRequest request) override {
    {
      const std::lock_guard lock(mutex_);
      TP_ASSERT(!is_closing_);
      queue_.push_back(std::move(request));
    }
    wake_.notify_one();
  }

  [[nodiscard]] std::string description() const override {
    return fmt::format("pread x{}", threads_.size());
  }

 private:
  void run() {
    while (true) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return is_closing_ || !queue_.empty(); });
      if (queue_.empty()) {
        return;
      }
      const ReadRequest request = std::move(queue_.front());
      queue_.pop_front();
      const bool is_given_up = is_closing_;
      lock.unlock();
      if (is_given_up) {
        request.completion(std::unexpected(read_given_up(request)));
      } else {
        request.completion(request.file->read_exact_at(request.offset_bytes, request.target));
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<ReadRequest> queue_;
  bool is_closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<IoEngine>> make_pread_engine(unsigned thread_count) {
  if (thread_count == 0 || thread_count > kReadDepthMax) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("{} read threads were asked for", thread_count))
            .with_hint(fmt::format("1 to {} are possible", kReadDepthMax)));
  }
  auto engine = std::make_unique<PreadEngine>();
  TP_RETURN_IF_ERROR(engine->start(thread_count));
  return engine;
}

}  // namespace trash_panda::runtime
