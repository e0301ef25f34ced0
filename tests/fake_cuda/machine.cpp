#include "machine.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace trash_panda::fake_cuda {

namespace {

/// Contexts that the caller's thread has entered, by device.
thread_local std::vector<int> entered;  // NOLINT(readability-identifier-naming)

bool destroys_context(Status status) {
  return status == kIllegalAddress || status == kLaunchFailed || status == kUnknownError;
}

std::chrono::nanoseconds time_of(std::uint64_t size_bytes, std::uint64_t bytes_per_s) {
  if (bytes_per_s == 0) {
    return std::chrono::nanoseconds(0);
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * static_cast<double>(size_bytes) /
                                                            static_cast<double>(bytes_per_s)));
}

}  // namespace

Machine& Machine::instance() {
  static Machine machine;
  return machine;
}

Machine::~Machine() {
  end_streams();
  time_.stop();
}

void Machine::reset(const Settings& settings) {
  end_streams();
  time_.stop();
  const std::lock_guard lock(mutex_);
  settings_ = settings;
  is_initialized_ = false;
  random_.seed(settings.seed);
  sticky_ = 0;
  calls_.clear();
  failures_.clear();
  books_ = Books();
  memory_ = DeviceMemory();
  host_ = VectorClock();
  next_actor_ = kHost + 1;
  events_.clear();
  registered_.clear();
  host_memory_.clear();
  modules_.clear();
  elsewhere_bytes_.clear();
  copy_bytes_in_flight_ = 0;
  copy_bytes_in_flight_max_ = 0;
  link_free_at_.clear();
  disk_free_at_ = std::chrono::nanoseconds(0);
  if (settings.delays == Delays::kSimulated) {
    time_.start();
  }
}

void Machine::fail(const std::string& function, int nth, Status status) {
  const std::lock_guard lock(mutex_);
  failures_[function] = {.nth = calls_[function] + nth, .status = status};
}

void Machine::forget_failures() {
  const std::lock_guard lock(mutex_);
  failures_.clear();
}

void Machine::break_unpinning() {
  const std::lock_guard lock(mutex_);
  settings_.fault = Fault::kForgetsUnpinning;
}

Status Machine::broken_by() {
  const std::lock_guard lock(mutex_);
  return sticky_;
}

std::map<std::string, int> Machine::calls() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

Books Machine::books() {
  const std::lock_guard lock(mutex_);
  Books books = books_;
  books.streams = static_cast<int>(streams_.size());
  books.events = static_cast<int>(events_.size());
  books.modules = static_cast<int>(modules_.size());
  books.device_allocations = memory_.allocation_count();
  books.host_allocations = static_cast<int>(host_memory_.size());
  books.registrations = static_cast<int>(registered_.size() - host_memory_.size());
  return books;
}

std::uint64_t Machine::device_bytes(int device) {
  const std::lock_guard lock(mutex_);
  return memory_.used_bytes(device);
}

void Machine::use_elsewhere(int device, std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  elsewhere_bytes_[device] =
      std::min(size_bytes, settings_.vram_bytes - memory_.used_bytes(device));
}

std::uint64_t Machine::registered_bytes() {
  std::uint64_t total_bytes = 0;
  for (const auto& [memory, size_bytes] : registrations()) {
    total_bytes += size_bytes;
  }
  return total_bytes;
}

std::map<const void*, std::size_t> Machine::registrations() {
  const std::lock_guard lock(mutex_);
  std::map<const void*, std::size_t> found(registered_.begin(), registered_.end());
  std::erase_if(found, [this](const auto& region) {
    return host_memory_.contains(static_cast<const std::byte*>(region.first));
  });
  return found;
}

std::vector<std::string> Machine::violations() {
  const std::lock_guard lock(mutex_);
  return memory_.violations();
}

void Machine::forget_violations() {
  const std::lock_guard lock(mutex_);
  memory_.violations().clear();
}

void Machine::pause() {
  const std::lock_guard lock(mutex_);
  is_paused_ = true;
}

void Machine::resume() {
  const std::lock_guard lock(mutex_);
  is_paused_ = false;
  changed_.notify_all();
}

std::uint64_t Machine::copy_bytes_in_flight_max() {
  const std::lock_guard lock(mutex_);
  return copy_bytes_in_flight_max_;
}

void Machine::compute(Stream stream, DeviceRange range, std::chrono::nanoseconds duration,
                      std::string* into) {
  const std::lock_guard lock(mutex_);
  StreamState* const state = find(stream);
  if (state == nullptr) {
    complain("computation on a stream that is not there");
    return;
  }
  Work work;
  work.duration = duration;
  work.run = [range, into] {
    into->assign(reinterpret_cast<const char*>(range.address), range.size_bytes);
  };
  static_cast<void>(queue(*state, "a computation", {{range, false}}, std::move(work)));
}

void Machine::wait_idle(Stream stream) {
  Lock lock(mutex_);
  if (StreamState* const state = find(stream)) {
    changed_.wait(lock, [state] { return state->is_idle(); });
  }
}

std::chrono::nanoseconds Machine::now() {
  const std::lock_guard lock(mutex_);
  return time_.now();
}

void Machine::disk_read(std::uint64_t size_bytes) {
  Lock lock(mutex_);
  if (settings_.delays == Delays::kSimulated) {
    disk_free_at_ =
        std::max(disk_free_at_, time_.now()) + time_of(size_bytes, settings_.disk_bytes_per_s);
    time_.sleep_until(lock, disk_free_at_);
  }
}

void Machine::break_context(Lock& lock, Status status) {
  sticky_ = status;
  // What runs comes to its end first: afterwards nobody touches the caller's memory any more.
  const auto is_still = [this] {
    const auto is_running = [](const auto& stream) { return stream.second->is_running; };
    return std::ranges::none_of(streams_, is_running) &&
           std::ranges::none_of(default_streams_, is_running);
  };
  changed_.wait(lock, is_still);
}

Status Machine::enter(Lock& lock, const std::string& function) {
  const int count = ++calls_[function];
  const auto failure = failures_.find(function);
  if (failure != failures_.end() && failure->second.nth == count) {
    const Status status = failure->second.status;
    if (destroys_context(status)) {
      break_context(lock, status);
    }
    return status;
  }
  if (!is_initialized_ && function != "cuInit") {
    return kNotInitialized;
  }
  // Entering and leaving a context does no work that could report an error of other work.
  const bool is_switch = function == "cuCtxPushCurrent_v2" || function == "cuCtxPopCurrent_v2";
  return is_switch ? runtime::cuda::kSuccess : sticky_;
}

Status Machine::init() {
  is_initialized_ = true;
  return settings_.device_count == 0 ? runtime::cuda::kNoDevice : runtime::cuda::kSuccess;
}

int Machine::current_device() const {
  return entered.empty() ? -1 : entered.back();
}

Status Machine::retain(int device, Context* context) {
  ++books_.contexts;
  // A context is its device, counted from 1.
  *context = reinterpret_cast<Context>(static_cast<std::uintptr_t>(device) + 1);
  return runtime::cuda::kSuccess;
}

Status Machine::release(int device) {
  static_cast<void>(device);
  --books_.contexts;
  return runtime::cuda::kSuccess;
}

Status Machine::push(Context context) {
  entered.push_back(static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1);
  return runtime::cuda::kSuccess;
}

Status Machine::pop(Context* context) {
  if (entered.empty()) {
    return kInvalidContext;
  }
  static_cast<void>(context);
  entered.pop_back();
  return runtime::cuda::kSuccess;
}

StreamState* Machine::find(Stream stream) {
  if (stream == nullptr) {
    auto& made = default_streams_[std::max(current_device(), 0)];
    if (made == nullptr) {
      made.reset(make_stream(std::max(current_device(), 0)));
    }
    return made.get();
  }
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second.get();
}

StreamState* Machine::make_stream(int device) {
  auto stream = std::make_unique<StreamState>();
  stream->device = device;
  stream->actor = next_actor_++;
  stream->thread = std::thread([this, state = stream.get()] { run(*state); });
  return stream.release();
}

Status Machine::create_stream(Stream* stream) {
  std::unique_ptr<StreamState> made(make_stream(current_device()));
  *stream = reinterpret_cast<Stream>(made.get());
  streams_[*stream] = std::move(made);
  return runtime::cuda::kSuccess;
}

void Machine::end_stream(Lock& lock, StreamState& stream) {
  stream.is_ending = true;
  changed_.notify_all();
  lock.unlock();
  stream.thread.join();
  lock.lock();
}

Status Machine::destroy_stream(Lock& lock, Stream stream) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) {
    return kInvalidHandle;
  }
  const std::unique_ptr<StreamState> ended = std::move(found->second);
  streams_.erase(found);
  end_stream(lock, *ended);
  return runtime::cuda::kSuccess;
}

void Machine::end_streams() {
  Lock lock(mutex_);
  is_paused_ = false;
  for (auto& [key, stream] : streams_) {
    end_stream(lock, *stream);
  }
  for (auto& [device, stream] : default_streams_) {
    end_stream(lock, *stream);
  }
  streams_.clear();
  default_streams_.clear();
}

void Machine::run(StreamState& stream) {
  Lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] {
      return (!stream.queue.empty() && !is_paused_) || (stream.queue.empty() && stream.is_ending);
    });
    if (stream.queue.empty()) {
      return;
    }
    const Work work = std::move(stream.queue.front());
    stream.queue.pop_front();
    stream.is_busy = true;
    if (work.waits_for != nullptr) {
      changed_.wait(lock, [&] { return work.waits_for->is_done; });
    }
    stream.is_running = true;
    spend(lock, stream, work);
    if (work.run && sticky_ == runtime::cuda::kSuccess) {
      lock.unlock();
      std::this_thread::sleep_for(work.delay);
      {
        const std::lock_guard bytes(bytes_mutex_);
        work.run();
      }
      lock.lock();
    }
    stream.is_running = false;
    if (work.sets != nullptr) {
      work.sets->is_done = true;
    }
    copy_bytes_in_flight_ -= work.link_bytes;
    stream.is_busy = false;
    changed_.notify_all();
  }
}

void Machine::spend(Lock& lock, StreamState& stream, const Work& work) {
  const bool is_slow = work.run || work.link_bytes > 0;
  if (settings_.delays == Delays::kRandom && is_slow) {
    const std::chrono::microseconds delay(
        random_() % (static_cast<std::uint64_t>(settings_.random_delay_max.count()) + 1));
    lock.unlock();
    std::this_thread::sleep_for(delay);
    lock.lock();
  } else if (settings_.delays == Delays::kSimulated && work.link_bytes > 0) {
    std::chrono::nanoseconds& free_at = link_free_at_[stream.device];
    free_at = std::max(free_at, time_.now()) + time_of(work.link_bytes, settings_.link_bytes_per_s);
    time_.sleep_until(lock, std::chrono::nanoseconds(free_at));
  } else if (settings_.delays == Delays::kSimulated && work.duration.count() > 0) {
    time_.sleep_until(lock, time_.now() + work.duration);
  }
}

Status Machine::queue(StreamState& stream, const std::string& what,
                      const std::vector<Access>& accesses, Work work) {
  stream.clock.join(host_);
  stream.clock.tick(stream.actor);
  const Status status = memory_.note(stream.device, accesses,
                                     {.name = what + " on stream " + std::to_string(stream.actor),
                                      .actor = stream.actor,
                                      .clock = &stream.clock});
  if (status != runtime::cuda::kSuccess) {
    sticky_ = status;
    return status;
  }
  copy_bytes_in_flight_ += work.link_bytes;
  copy_bytes_in_flight_max_ = std::max(copy_bytes_in_flight_max_, copy_bytes_in_flight_);
  stream.queue.push_back(std::move(work));
  changed_.notify_all();
  return runtime::cuda::kSuccess;
}

Status Machine::synchronize_stream(Lock& lock, Stream stream) {
  StreamState* const state = find(stream);
  if (state == nullptr) {
    return kInvalidHandle;
  }
  const VectorClock clock = state->clock;
  changed_.wait(lock, [state] { return state->is_idle(); });
  host_.join(clock);
  return sticky_;
}

Status Machine::create_event(Event* event) {
  auto made = std::make_unique<EventState>();
  *event = reinterpret_cast<Event>(made.get());
  events_[*event] = std::move(made);
  return runtime::cuda::kSuccess;
}

Status Machine::destroy_event(Event event) {
  return events_.erase(event) == 1 ? runtime::cuda::kSuccess : kInvalidHandle;
}

Status Machine::record(Event event, Stream stream) {
  StreamState* const state = find(stream);
  const auto found = events_.find(event);
  if (state == nullptr || found == events_.end()) {
    return kInvalidHandle;
  }
  auto mark = std::make_shared<Mark>();
  Work work;
  work.sets = mark;
  const Status status = queue(*state, "an event", {}, std::move(work));
  *found->second = {.mark = std::move(mark), .clock = state->clock};
  return status;
}

Status Machine::wait_event(Stream stream, Event event) {
  StreamState* const state = find(stream);
  const auto found = events_.find(event);
  if (state == nullptr || found == events_.end()) {
    return kInvalidHandle;
  }
  if (found->second->mark == nullptr || settings_.fault == Fault::kIgnoresWaits) {
    return runtime::cuda::kSuccess;
  }
  state->clock.join(found->second->clock);
  Work work;
  work.waits_for = found->second->mark;
  return queue(*state, "a wait", {}, std::move(work));
}

Status Machine::query(Event event) {
  const auto found = events_.find(event);
  if (found == events_.end()) {
    return kInvalidHandle;
  }
  if (found->second->mark != nullptr && !found->second->mark->is_done) {
    return runtime::cuda::kNotReady;
  }
  host_.join(found->second->clock);
  return runtime::cuda::kSuccess;
}

Status Machine::synchronize_event(Lock& lock, Event event) {
  const auto found = events_.find(event);
  if (found == events_.end()) {
    return kInvalidHandle;
  }
  const EventState state = *found->second;
  changed_.wait(lock, [&] { return state.mark == nullptr || state.mark->is_done; });
  host_.join(state.clock);
  return sticky_;
}

}  // namespace trash_panda::fake_cuda
