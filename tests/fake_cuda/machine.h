#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device_memory.h"
#include "fake_cuda.h"
#include "kernels.h"
#include "simulated_time.h"
#include "vector_clock.h"

namespace trash_panda::fake_cuda {

using Lock = std::unique_lock<std::mutex>;
using runtime::cuda::Context;
using runtime::cuda::Event;

/// Set once by a stream, when it comes to an event's record.
struct Mark {
  bool is_done = false;
};

/// One piece of queued work.
struct Work {
  std::function<void()> run;        ///< Without the lock; may be empty.
  std::shared_ptr<Mark> waits_for;  ///< Of another stream; may be null.
  std::shared_ptr<Mark> sets;       ///< May be null.
  std::chrono::nanoseconds duration{0};
  std::chrono::milliseconds delay{0};  ///< Slept before it is run.
  std::uint64_t link_bytes = 0;        ///< Of a copy to the device.
};

/// A queue and the thread that does what is in it, in order.
struct StreamState {
  int device = 0;
  Actor actor = kHost;
  VectorClock clock;  ///< Of the last work that was queued.
  std::deque<Work> queue;
  bool is_busy = false;
  bool is_running = false;  ///< Busy, and not waiting for an event.
  bool is_ending = false;
  std::thread thread;

  [[nodiscard]] bool is_idle() const { return queue.empty() && !is_busy; }
};

/// The last record of an event: what is known to be done once it has passed.
struct EventState {
  std::shared_ptr<Mark> mark;  ///< Null: never recorded, which counts as passed.
  VectorClock clock;
};

/// Everything behind the functions of libcuda, under one lock.
class Machine final : public Control {
 public:
  static Machine& instance();
  Machine() : time_(mutex_, changed_) {}
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  void reset(const Settings& settings) override;
  void fail(const std::string& function, int nth, Status status) override;
  void forget_failures() override;
  void break_unpinning() override;
  Status broken_by() override;
  std::map<std::string, int> calls() override;
  Books books() override;
  std::uint64_t device_bytes(int device) override;
  void use_elsewhere(int device, std::uint64_t size_bytes) override;
  std::uint64_t registered_bytes() override;
  std::map<const void*, std::size_t> registrations() override;
  std::vector<std::string> violations() override;
  void forget_violations() override;
  void pause() override;
  void resume() override;
  std::uint64_t copy_bytes_in_flight_max() override;
  void compute(Stream stream, DeviceRange range, std::chrono::nanoseconds duration,
               std::string* into) override;
  void wait_idle(Stream stream) override;
  std::chrono::nanoseconds now() override;
  void disk_read(std::uint64_t size_bytes) override;

  // The functions of libcuda, called with the lock held and errors sorted out: see api.cpp.
  [[nodiscard]] Lock lock() { return Lock(mutex_); }
  /// Counts a call. @return The error that it must end with, if any.
  Status enter(Lock& lock, const std::string& function);
  /// The device of the caller's current context.
  [[nodiscard]] int current_device() const;
  Status init();
  [[nodiscard]] const Settings& settings() const { return settings_; }
  Status retain(int device, Context* context);
  Status release(int device);
  Status push(Context context);
  Status pop(Context* context);
  Status create_stream(Stream* stream);
  Status destroy_stream(Lock& lock, Stream stream);
  Status synchronize_stream(Lock& lock, Stream stream);
  Status wait_event(Stream stream, Event event);
  Status create_event(Event* event);
  Status destroy_event(Event event);
  Status record(Event event, Stream stream);
  Status query(Event event);
  Status synchronize_event(Lock& lock, Event event);
  Status allocate(std::size_t size_bytes, DeviceAddress* address);
  Status free(DeviceAddress address);
  Status host_allocate(std::size_t size_bytes, void** memory);
  Status host_free(void* memory);
  Status register_host(void* memory, std::size_t size_bytes);
  Status unregister_host(void* memory);
  Status copy_to_device(DeviceAddress target, const void* source, std::size_t size_bytes,
                        Stream stream);
  Status copy_from_device(Lock& lock, void* target, DeviceAddress source, std::size_t size_bytes,
                          Stream stream);
  Status copy_on_device(DeviceAddress target, DeviceAddress source, std::size_t size_bytes,
                        Stream stream);
  Status load_module(const void* image, runtime::cuda::Module* module);
  Status unload_module(runtime::cuda::Module module);
  Status launch(const Kernel* kernel, std::uint64_t thread_count, Stream stream, void** arguments);
  [[nodiscard]] std::uint64_t free_bytes(int device);
  /// An error that stays, once it has happened; 0: none.
  [[nodiscard]] Status sticky() const { return sticky_; }

 private:
  struct Failure {
    int nth;
    Status status;
  };
  enum class Pinned { kNo, kYes, kPartly };

  StreamState* find(Stream stream);
  StreamState* make_stream(int device);
  void end_stream(Lock& lock, StreamState& stream);
  void end_streams();
  /// Orders work after what its stream and the host know, checks its accesses and queues it.
  Status queue(StreamState& stream, const std::string& what, const std::vector<Access>& accesses,
               Work work);
  /// An error after which nothing is computed any more, and every call fails.
  void break_context(Lock& lock, Status status);
  void run(StreamState& stream);
  void spend(Lock& lock, StreamState& stream, const Work& work);
  [[nodiscard]] Pinned pinned(const void* memory, std::size_t size_bytes) const;
  void complain(std::string what) { memory_.violations().push_back(std::move(what)); }

  std::mutex mutex_;
  /// Held by work that runs. Work that is not ordered is told of by memory_, whose messages name
  /// it, and not by the thread sanitizer as well. Taken before mutex_.
  std::mutex bytes_mutex_;
  std::condition_variable changed_;
  SimulatedTime time_;
  Settings settings_;
  bool is_initialized_ = false;
  bool is_paused_ = false;
  std::mt19937 random_;
  Status sticky_ = 0;
  std::map<std::string, int> calls_;
  std::map<std::string, Failure> failures_;
  Books books_;
  DeviceMemory memory_;
  VectorClock host_;
  Actor next_actor_ = kHost + 1;
  std::map<Stream, std::unique_ptr<StreamState>> streams_;
  std::map<int, std::unique_ptr<StreamState>> default_streams_;  ///< By device.
  std::map<Event, std::unique_ptr<EventState>> events_;
  std::map<const std::byte*, std::size_t> registered_;
  std::map<const std::byte*, std::vector<std::byte>> host_memory_;
  std::map<runtime::cuda::Module, std::unique_ptr<int>> modules_;
  std::map<int, std::uint64_t> elsewhere_bytes_;  ///< By device: what other programs take.
  std::uint64_t copy_bytes_in_flight_ = 0;
  std::uint64_t copy_bytes_in_flight_max_ = 0;
  std::map<int, std::chrono::nanoseconds> link_free_at_;  ///< By device.
  std::chrono::nanoseconds disk_free_at_{0};
};

}  // namespace trash_panda::fake_cuda
