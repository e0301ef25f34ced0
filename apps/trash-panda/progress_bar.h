#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "trash_panda/base/progress.h"

#include "console.h"

namespace trash_panda::cli {

/// What a progress line is made from.
struct ProgressSample {
  std::string_view title;  ///< "repacking".
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;  ///< 0: not known; the line then says how long it has been.
  double bytes_per_s = 0;
  std::chrono::milliseconds elapsed{0};
};

/// "repacking  45 %  41.0 GB of 90.9 GB  1.23 GB/s  41 s left".
[[nodiscard]] std::string progress_text(const ProgressSample& sample);
/// The same as one JSON object.
[[nodiscard]] std::string progress_json(const ProgressSample& sample);
/// "8 s", "2 min 05 s", "1 h 07 min".
[[nodiscard]] std::string format_duration(std::chrono::seconds duration);

/// Shows how far an operation is, from a thread of its own, so that it also tells when nothing
/// moves. Silent for operations that end within two seconds.
///
/// On a terminal one line that is redrawn; else, and with --progress always, a line every 10 s;
/// with --progress json an object every second.
class ProgressBar {
 public:
  ProgressBar(Console& console, std::string title);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// Takes the line away.
  ~ProgressBar();

  /// Changes what the line begins with, from any thread.
  void set_title(std::string title);
  /// For the library; valid as long as the bar, from any thread.
  [[nodiscard]] ProgressCallback callback();

 private:
  enum class Form { kNone, kRedraw, kLines, kJson };

  void run();
  void show(const ProgressSample& sample);

  Console& console_;
  std::string title_;
  Form form_;
  std::atomic<std::uint64_t> done_bytes_{0};
  std::atomic<std::uint64_t> total_bytes_{0};
  std::atomic<std::uint64_t> skipped_bytes_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace trash_panda::cli
