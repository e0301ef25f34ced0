#include "run_recorder.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"

namespace trash_panda::runtime {

namespace {

/// About 1.5 MiB: two passes of a thousand blocks, and far more than come while a page is written.
constexpr std::size_t kRingEntries = 16'384;

}  // namespace

RunRecorder::RunRecorder(std::filesystem::path path, const RunStart& start, Logger log)
    : path_(std::move(path)),
      log_(std::move(log)),
      file_(path_, std::ios::trunc),
      lines_(RunClock::now(), start),
      ring_(kRingEntries) {}

Result<std::unique_ptr<RunRecorder>> RunRecorder::create(const std::filesystem::path& path,
                                                         const RunStart& start, Logger log) {
  auto recorder = std::make_unique<RunRecorder>(path, start, std::move(log));
  if (!recorder->file_) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("can't write the run log {}", printable(path))));
  }
  recorder->write();
  try {
    recorder->writer_ =
        std::jthread([at = recorder.get()](const std::stop_token& stop) { at->write_until(stop); });
  } catch (const std::exception& error) {
    return std::unexpected(Error(
        ErrorCode::kFailed, fmt::format("can't start a thread for the run log: {}", error.what())));
  }
  return recorder;
}

RunRecorder::~RunRecorder() {
  writer_ = std::jthread();
  write();
}

void RunRecorder::push(const Entry& entry) {
  const std::size_t count = ring_.push(entry);
  if (count == 0) {
    lost_count_.fetch_add(1, std::memory_order_relaxed);
  }
  if (count == 0 || count == ring_.capacity() / 2) {
    wake();
  }
}

void RunRecorder::end_pass(const RunPass& pass) {
  push(pass);
  wake();
}

void RunRecorder::wake() {
  const std::lock_guard lock(mutex_);
  has_work_ = true;
  work_.notify_one();
}

void RunRecorder::write_until(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, stop, [this] { return has_work_; });
      has_work_ = false;
    }
    write();
  }
}

void RunRecorder::write() {
  ring_.drain([this](const Entry& entry) {
    std::visit([this](const auto& record) { lines_.add(record); }, entry);
  });
  const std::uint64_t lost_count = lost_count_.load(std::memory_order_relaxed);
  if (lost_count > told_lost_count_) {
    lines_.add_lost(lost_count - std::exchange(told_lost_count_, lost_count));
  }
  const std::string lines = lines_.take();
  if (lines.empty() || !file_) {
    return;
  }
  file_ << lines;
  file_.flush();
  if (!file_) {
    log_(LogLevel::kWarning,
         fmt::format("the run log {} can't be written any more: it ends here", printable(path_)));
  }
}

}  // namespace trash_panda::runtime
