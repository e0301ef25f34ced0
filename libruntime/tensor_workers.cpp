#include "tensor_workers.h"

#include <system_error>
#include <utility>

namespace trash_panda::runtime {

TensorWorkers::TensorWorkers(std::size_t thread_count, std::function<void()> on_call)
    : on_call_(std::move(on_call)) {
  while (threads_.size() < thread_count) {
    try {
      threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
    } catch (const std::system_error&) {
      break;  // Whoever waits makes the tensors alone.
    }
  }
  thread_count_ = threads_.size();
}

TensorWorkers::~TensorWorkers() {
  stop();
}

void TensorWorkers::stop() {
  for (std::jthread& thread : threads_) {
    thread.request_stop();
  }
  threads_.clear();  // Joins them.
}

void TensorWorkers::help(TensorMaker& maker) {
  if (thread_count_ == 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  queue_.push_back({.maker = &maker, .ticket = ++ticket_});
  work_.notify_all();
}

void TensorWorkers::call() {
  const std::lock_guard lock(mutex_);
  is_called_ = true;
  work_.notify_one();
}

void TensorWorkers::run(const std::stop_token& stop) {
  TensorMaker::Scratch scratch;
  std::unique_lock lock(mutex_);
  while (work_.wait(lock, stop, [this] { return is_called_ || !queue_.empty(); }) &&
         !stop.stop_requested()) {
    if (std::exchange(is_called_, false)) {
      lock.unlock();
      on_call_();
      lock.lock();
      continue;
    }
    const Entry entry = queue_.front();
    lock.unlock();
    entry.maker->work(scratch);
    lock.lock();
    std::erase_if(queue_, [&entry](const Entry& other) { return other.ticket == entry.ticket; });
  }
}

}  // namespace trash_panda::runtime
