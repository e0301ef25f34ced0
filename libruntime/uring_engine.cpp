#include "uring_engine.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

#include "io_given_up.h"
#include "uring_setup.h"

namespace trash_panda::runtime {

namespace {

/// A longer read than this is made in several, as the kernel does with more than 2 GiB anyway.
constexpr std::uint64_t kSingleReadBytesMax = 1 * kGiB;
/// How often in a row a read is begun again without having got further: EINTR and EAGAIN pass.
constexpr unsigned kRetriesMax = 100;
/// How often the kernel may say that it has no room for a submission, a millisecond apart, while
/// nothing else comes in.
constexpr unsigned kStallsMax = 2000;
/// Which completion is that of the wake-up, not of a read.
constexpr std::uint32_t kWakeId = std::numeric_limits<std::uint32_t>::max();

/// An eventfd, by which other threads wake the one that waits in the ring.
class WakeEvent {
 public:
  WakeEvent() = default;
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;
  ~WakeEvent() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  Result<void> open() {
    fd_ = ::eventfd(0, EFD_CLOEXEC);
    if (fd_ < 0) {
      return std::unexpected(Error::from_errno(errno, "can't make an eventfd for io_uring"));
    }
    return {};
  }

  void wake() const {
    const std::uint64_t one = 1;
    while (::write(fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  /// Without the ring.
  void wait() {
    while (::read(fd_, &count_, sizeof count_) < 0 && errno == EINTR) {
    }
  }

  void prepare_wait(io_uring_sqe* entry) {
    io_uring_prep_read(entry, fd_, &count_, sizeof count_, 0);
    io_uring_sqe_set_data64(entry, kWakeId);
  }

 private:
  int fd_ = -1;
  std::uint64_t count_ = 0;  ///< Where the kernel writes what the event holds.
};

/// Threads: submit() only queues. The ring and everything about reads in flight belong to the
/// engine's thread; `mutex_` guards the queue and the two flags.
class UringEngine final : public IoEngine {
 public:
  UringEngine(std::uint32_t depth, ReadResultFilter filter)
      : filter_(std::move(filter)), places_(depth), free_(depth) {
    std::iota(free_.rbegin(), free_.rend(), 0U);
  }
  UringEngine(const UringEngine&) = delete;
  UringEngine& operator=(const UringEngine&) = delete;

  ~UringEngine() override {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        is_closing_ = true;
      }
      wake_.wake();
      thread_.join();
    }
  }

  Result<void> start(const IoOptions& options) {
    TP_RETURN_IF_ERROR(setup_.open(options.depth + 1));  // One for the wake-up.
    TP_RETURN_IF_ERROR(wake_.open());
    setup_.enroll(options);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& refused) {
      return std::unexpected(
          Error::from_errno(refused.code().value(), "can't start the thread of io_uring"));
    }
    return {};
  }

  void submit(ReadRequest request) override {
    bool must_wake = false;
    {
      const std::lock_guard lock(mutex_);
      TP_ASSERT(!is_closing_);
      queue_.push_back(std::move(request));
      must_wake = std::exchange(wants_wake_, false);
    }
    if (must_wake) {
      wake_.wake();
    }
  }

  [[nodiscard]] std::string description() const override {
    return fmt::format("io_uring x{}{}", places_.size(),
                       setup_.has_buffers() ? ", registered buffers" : "");
  }

 private:
  /// A read that was begun.
  struct Place {
    ReadRequest request = {};
    std::uint64_t done_bytes = 0;
    unsigned retry_count = 0;  ///< Since it last got further.
  };

  void run() {
    while (true) {
      const bool is_closing = begin_queued();
      const bool is_idle = free_.size() == places_.size();
      if (is_closing && is_idle && !is_wake_armed_) {
        return;
      }
      if (!failure_) {
        submit_and_wait();
      } else if (!is_idle || is_wake_armed_) {
        wait_only();
      } else {
        wake_.wait();
      }
      take_completions();
    }
  }

  /// Begins what waits, as far as there are places; gives it up when that can't be any more.
  ///
  /// @return Whether the engine is being destroyed.
  bool begin_queued() {
    std::deque<ReadRequest> given_up;
    bool is_closing = false;
    {
      const std::lock_guard lock(mutex_);
      is_closing = is_closing_;
      if (is_closing || failure_) {
        given_up.swap(queue_);
      }
      while (!queue_.empty() && !free_.empty()) {
        const std::uint32_t place = free_.back();
        free_.pop_back();
        places_[place] = {.request = std::move(queue_.front())};
        queue_.pop_front();
        begin(place);
      }
      // With all places taken, the next completion looks at the queue anyway.
      wants_wake_ = !free_.empty();
    }
    for (const ReadRequest& request : given_up) {
      request.completion(std::unexpected(failure_ ? *failure_ : read_given_up(request)));
    }
    if (!is_closing && !failure_ && !is_wake_armed_) {
      wake_.prepare_wait(next_entry(kWakeId));
      is_wake_armed_ = true;
    }
    return is_closing;
  }

  io_uring_sqe* next_entry(std::uint32_t id) {
    io_uring_sqe* entry = io_uring_get_sqe(&setup_.ring());
    TP_ASSERT(entry != nullptr);  // There are as many entries as places, and one for the wake-up.
    prepared_.push_back(id);
    return entry;
  }

  /// Prepares to read what is missing of a place.
  void begin(std::uint32_t place) {
    const Place& read = places_[place];
    const File& file = *read.request.file;
    const std::span<std::byte> rest = read.request.target.subspan(read.done_bytes);
    const auto size_bytes =
        static_cast<unsigned>(std::min<std::uint64_t>(rest.size(), kSingleReadBytesMax));
    const std::uint64_t offset_bytes = read.request.offset_bytes + read.done_bytes;
    const std::optional<unsigned> file_index = setup_.file_index(&file);
    const int fd = file_index ? static_cast<int>(*file_index) : file.fd();
    io_uring_sqe* entry = next_entry(place);
    if (const std::optional<unsigned> buffer = setup_.buffer_index(rest.first(size_bytes))) {
      io_uring_prep_read_fixed(entry, fd, rest.data(), size_bytes, offset_bytes,
                               static_cast<int>(*buffer));
    } else {
      io_uring_prep_read(entry, fd, rest.data(), size_bytes, offset_bytes);
    }
    // What may copy from the page cache, or was refused for now, goes to the kernel's threads: it
    // would hold this one.
    const bool may_block = file.mode() == ReadMode::kBuffered || read.retry_count > 0;
    io_uring_sqe_set_flags(entry,
                           (file_index ? IOSQE_FIXED_FILE : 0U) | (may_block ? IOSQE_ASYNC : 0U));
    io_uring_sqe_set_data64(entry, place);
  }

  void submit_and_wait() {
    const int status = io_uring_submit_and_wait(&setup_.ring(), 1);
    while (prepared_.size() > io_uring_sq_ready(&setup_.ring())) {
      prepared_.pop_front();  // The kernel has it.
    }
    if (status >= 0 || status == -EINTR) {
      stall_count_ = 0;
      return;
    }
    const bool may_pass = status == -EAGAIN || status == -EBUSY;
    if (may_pass && ++stall_count_ < kStallsMax) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    // The ring takes nothing any more. What it has comes in; all else fails.
    failure_ = Error::from_errno(-status, "io_uring does not take reads any more");
    for (const std::uint32_t id : std::exchange(prepared_, {})) {
      if (id == kWakeId) {
        is_wake_armed_ = false;
      } else {
        finish(id, std::unexpected(*failure_));
      }
    }
  }

  void wait_only() {
    io_uring_cqe* ignored = nullptr;
    if (io_uring_wait_cqe(&setup_.ring(), &ignored) < 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void take_completions() {
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(&setup_.ring(), &completion) == 0) {
      const auto id = static_cast<std::uint32_t>(io_uring_cqe_get_data64(completion));
      const std::int32_t result = completion->res;
      io_uring_cqe_seen(&setup_.ring(), completion);
      stall_count_ = 0;
      if (id == kWakeId) {
        is_wake_armed_ = false;
      } else {
        take_result(id, filter_ ? filter_(result) : result);
      }
    }
  }

  void take_result(std::uint32_t place, std::int32_t result) {
    Place& read = places_[place];
    const ReadRequest& request = read.request;
    if (result > 0) {
      read.done_bytes += static_cast<std::uint64_t>(result);
      read.retry_count = 0;
    }
    const bool is_passing =
        (result == -EINTR || result == -EAGAIN) && ++read.retry_count <= kRetriesMax;
    if (result < 0 && !is_passing) {
      finish(place, std::unexpected(
                        request.file->read_refused(-result, request.offset_bytes + read.done_bytes,
                                                   request.target.size() - read.done_bytes)));
    } else if (read.done_bytes == request.target.size()) {
      finish(place, {});
    } else if (result == 0 || is_cut(read)) {
      finish(place, std::unexpected(request.file->ends_early(
                        request.offset_bytes, request.target.size(), read.done_bytes)));
    } else if (failure_) {
      finish(place, std::unexpected(*failure_));
    } else {
      begin(place);
    }
  }

  /// Whether a direct read came back with a broken length, which only the end of the file makes.
  /// The rest could not be read, as it would not be aligned.
  static bool is_cut(const Place& read) {
    const File& file = *read.request.file;
    return file.mode() == ReadMode::kDirect &&
           read.done_bytes % file.direct_alignment().offset_bytes != 0;
  }

  void finish(std::uint32_t place, Result<void> result) {
    const ReadRequest request = std::exchange(places_[place].request, {});
    free_.push_back(place);
    request.completion(std::move(result));
  }

  const ReadResultFilter filter_;
  UringSetup setup_;
  WakeEvent wake_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> free_;
  std::deque<std::uint32_t> prepared_;  ///< In the submission queue, not yet taken by the kernel.
  bool is_wake_armed_ = false;
  unsigned stall_count_ = 0;
  std::optional<Error> failure_;

  std::mutex mutex_;
  std::deque<ReadRequest> queue_;
  bool is_closing_ = false;
  bool wants_wake_ = false;  ///< The engine's thread waits, and has places left.

  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<IoEngine>> make_uring_engine(const IoOptions& options,
                                                    ReadResultFilter filter) {
  if (options.depth == 0 || options.depth > kReadDepthMax) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("{} reads in flight were asked for", options.depth))
            .with_hint(fmt::format("1 to {} are possible", kReadDepthMax)));
  }
  auto engine = std::make_unique<UringEngine>(options.depth, std::move(filter));
  TP_RETURN_IF_ERROR(engine->start(options));
  return engine;
}

}  // namespace trash_panda::runtime
