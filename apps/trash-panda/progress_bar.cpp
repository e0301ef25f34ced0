#include "progress_bar.h"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

#include "json_text.h"

namespace trash_panda::cli {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// Nothing is shown before: short operations stay silent, and none is silent for longer.
constexpr milliseconds kQuietTime{1500};
constexpr milliseconds kRedrawInterval{200};
constexpr milliseconds kJsonInterval{1000};
constexpr milliseconds kLineInterval{10'000};
/// Weight of the past in the rate: about the last ten seconds count.
constexpr double kRateMemorySeconds = 5.0;

seconds time_left(const ProgressSample& sample) {
  const std::uint64_t left_bytes =
      sample.total_bytes - std::min(sample.done_bytes, sample.total_bytes);
  return seconds(
      static_cast<std::int64_t>(std::ceil(static_cast<double>(left_bytes) / sample.bytes_per_s)));
}

/// Below this a remaining time would be a number of years: it is standing still.
constexpr double kMovingBytesPerS = 1000;

}  // namespace

std::string format_duration(seconds duration) {
  const std::int64_t total = duration.count();
  if (total < 60) {
    return fmt::format("{} s", total);
  }
  if (total < 3600) {
    return fmt::format("{} min {:02} s", total / 60, total % 60);
  }
  return fmt::format("{} h {:02} min", total / 3600, total % 3600 / 60);
}

std::string progress_text(const ProgressSample& sample) {
  if (sample.total_bytes == 0) {
    return fmt::format("{}  {}", sample.title,
                       format_duration(std::chrono::duration_cast<seconds>(sample.elapsed)));
  }
  const double part =
      static_cast<double>(sample.done_bytes) / static_cast<double>(sample.total_bytes);
  std::string text = fmt::format("{}  {:.0f} %  {} of {}", sample.title, std::floor(100 * part),
                                 format_bytes(sample.done_bytes), format_bytes(sample.total_bytes));
  if (sample.done_bytes < sample.total_bytes && sample.bytes_per_s < kMovingBytesPerS) {
    return text + "  waiting";
  }
  if (sample.done_bytes < sample.total_bytes) {
    text += fmt::format("  {:.2f} GB/s  {} left", sample.bytes_per_s / 1e9,
                        format_duration(time_left(sample)));
  }
  return text;
}

std::string progress_json(const ProgressSample& sample) {
  Json line = {{"type", "progress"},
               {"operation", sample.title},
               {"done_bytes", sample.done_bytes},
               {"total_bytes", sample.total_bytes},
               {"bytes_per_s", std::round(sample.bytes_per_s)},
               {"elapsed_ms", sample.elapsed.count()}};
  if (sample.bytes_per_s >= kMovingBytesPerS && sample.total_bytes != 0) {
    line["left_s"] = time_left(sample).count();
  }
  return json_line(line);
}

ProgressBar::ProgressBar(Console& console, std::string title)
    : console_(console), title_(std::move(title)), form_(Form::kNone) {
  const ConsoleSettings& settings = console.settings();
  switch (settings.progress) {
    case ProgressMode::kAuto:
      if (settings.verbosity != Verbosity::kQuiet && !settings.json) {
        form_ = console.stderr_is_terminal() ? Form::kRedraw : Form::kLines;
      }
      break;
    case ProgressMode::kAlways:
      form_ = console.stderr_is_terminal() ? Form::kRedraw : Form::kLines;
      break;
    case ProgressMode::kNever:
      break;
    case ProgressMode::kJson:
      form_ = Form::kJson;
      break;
  }
  if (form_ != Form::kNone) {
    // Its refusal of a thread is an exception; the work is worth more than the sight of it.
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
      form_ = Form::kNone;
    }
  }
}

ProgressBar::~ProgressBar() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
  console_.set_status({});
}

void ProgressBar::set_title(std::string title) {
  const std::scoped_lock lock(mutex_);
  title_ = std::move(title);
}

ProgressCallback ProgressBar::callback() {
  return [this](const Progress& progress) {
    total_bytes_ = progress.total_bytes;
    skipped_bytes_ = progress.skipped_bytes;
    done_bytes_ = progress.done_bytes;
  };
}

void ProgressBar::show(const ProgressSample& sample) {
  if (form_ == Form::kRedraw) {
    console_.set_status(progress_text(sample));
  } else if (form_ == Form::kLines) {
    console_.progress_line(progress_text(sample));
  } else if (form_ == Form::kJson) {
    console_.progress_line(progress_json(sample));
  }
}

void ProgressBar::run() {
  const milliseconds interval = form_ == Form::kRedraw  ? kRedrawInterval
                                : form_ == Form::kLines ? kLineInterval
                                                        : kJsonInterval;
  const Clock::time_point start = Clock::now();
  Clock::time_point measured = start;
  Clock::time_point next_show = start + kQuietTime;
  std::uint64_t measured_bytes = 0;
  double rate = 0;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kRedrawInterval, [this] { return ending_; })) {
    const Clock::time_point now = Clock::now();
    const double step_s = std::chrono::duration<double>(now - measured).count();
    const std::uint64_t done_bytes = done_bytes_;
    // What an earlier run did says nothing of how fast this one is.
    const std::uint64_t worked_bytes =
        done_bytes - std::min<std::uint64_t>(skipped_bytes_, done_bytes);
    const double step_rate =
        static_cast<double>(worked_bytes - std::min(measured_bytes, worked_bytes)) / step_s;
    const double weight = measured_bytes == 0 ? 1.0 : 1.0 - std::exp(-step_s / kRateMemorySeconds);
    rate += weight * (step_rate - rate);
    measured = now;
    measured_bytes = worked_bytes;
    if (now < next_show) {
      continue;
    }
    next_show = now + interval;
    show({.title = title_,
          .done_bytes = done_bytes,
          .total_bytes = total_bytes_,
          .bytes_per_s = rate,
          .elapsed = std::chrono::duration_cast<milliseconds>(now - start)});
  }
}

}  // namespace trash_panda::cli
