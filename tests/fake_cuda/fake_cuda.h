#pragma once

// What tests ask of the fake driver, beside the functions of libcuda that it exports. It is a
// shared library, libcuda.so.1, which the code under test loads as it would load NVIDIA's.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "cuda/driver.h"

namespace trash_panda::fake_cuda {

using runtime::cuda::DeviceAddress;
using runtime::cuda::Status;
using runtime::cuda::Stream;

inline constexpr Status kNotInitialized = 3;
inline constexpr Status kInvalidImage = 200;
inline constexpr Status kInvalidContext = 201;
inline constexpr Status kInvalidHandle = 400;
inline constexpr Status kNotFound = 500;
inline constexpr Status kIllegalAddress = 700;
inline constexpr Status kAlreadyRegistered = 712;
inline constexpr Status kNotRegistered = 713;
inline constexpr Status kLaunchFailed = 719;
inline constexpr Status kUnknownError = 999;

/// When queued work is done.
enum class Delays {
  kNone,       ///< As soon as the stream's thread comes to it.
  kRandom,     ///< After a random time, so that what is not ordered happens in any order.
  kSimulated,  ///< In simulated time: copies and kernels take what their bytes take at the rates
               ///< below, and time moves on when every thread of the process sleeps.
};

/// A driver that breaks a rule.
enum class Fault {
  kNone,
  kRefusesPins,      ///< Out of memory for every registration, as under WSL2 or a tight memlock.
  kPinsWholePages,   ///< Registers all pages that a range touches, so that neighbours overlap.
  kIgnoresWaits,     ///< A stream does not wait for events of another.
  kForgetsUnpinning  ///< Fails to unregister.
};

struct Settings {
  int device_count = 2;
  std::uint64_t vram_bytes = std::uint64_t{64} << 20;  ///< Of each device.
  Delays delays = Delays::kNone;
  std::uint32_t seed = 1;
  std::chrono::microseconds random_delay_max{300};
  // Of kSimulated.
  std::uint64_t link_bytes_per_s = 0;  ///< Host to device, one copy at a time.
  std::uint64_t disk_bytes_per_s = 0;  ///< Of disk_read().
  Fault fault = Fault::kNone;
};

/// What has been handed out and not been given back.
struct Books {
  int contexts = 0;
  int streams = 0;
  int events = 0;
  int modules = 0;
  int device_allocations = 0;
  int host_allocations = 0;
  int registrations = 0;

  bool operator==(const Books&) const = default;
};

/// A memory range of a device.
struct DeviceRange {
  DeviceAddress address;
  std::size_t size_bytes;
};

/// The test's side of the fake. Thread-safe.
class Control {
 public:
  /// A new machine: everything that was handed out is gone, all counts are 0.
  virtual void reset(const Settings& settings) = 0;
  /// The n-th call of a function from now on fails (1: the next). Errors that destroy a context
  /// (700, 719, 999) make every later call fail too, until reset().
  ///
  /// Calls that give something back do so all the same, as NVIDIA's do when they report an error of
  /// earlier work; except cuMemHostUnregister, whose memory stays registered.
  virtual void fail(const std::string& function, int nth, Status status) = 0;
  /// No call fails that fail() has asked for and that has not been made.
  virtual void forget_failures() = 0;
  /// From now on as with Fault::kForgetsUnpinning.
  virtual void break_unpinning() = 0;
  /// The error that broke the contexts, which a user's synchronisation would report; 0: none.
  virtual Status broken_by() = 0;
  /// How often each function was called.
  virtual std::map<std::string, int> calls() = 0;
  virtual Books books() = 0;
  virtual std::uint64_t device_bytes(int device) = 0;
  /// Another program takes so much of a device's memory from now on, or as much as is free.
  virtual void use_elsewhere(int device, std::uint64_t size_bytes) = 0;
  /// Of host memory; what the driver itself allocated is not counted.
  virtual std::uint64_t registered_bytes() = 0;
  /// Ranges that are registered, by address.
  virtual std::map<const void*, std::size_t> registrations() = 0;
  /// Rules of CUDA that were broken, a line each: unordered access, use after free, a source that
  /// changed while its copy was under way.
  virtual std::vector<std::string> violations() = 0;
  virtual void forget_violations() = 0;
  /// Streams do nothing until resume(): what is queued stays queued.
  virtual void pause() = 0;
  virtual void resume() = 0;
  /// The most bytes of copies to devices that were queued and not done at one time.
  virtual std::uint64_t copy_bytes_in_flight_max() = 0;

  /// Queues a kernel that stands for the user's computation: reads `range` when the stream comes to
  /// it.
  /// @param into  Gets the bytes; left alone by the caller until the stream is synchronised.
  virtual void compute(Stream stream, DeviceRange range, std::chrono::nanoseconds duration,
                       std::string* into) = 0;
  /// Waits until the stream is idle, without ordering anything after it as a synchronisation does.
  virtual void wait_idle(Stream stream) = 0;

  /// Simulated time since reset().
  virtual std::chrono::nanoseconds now() = 0;
  /// Sleeps as long as a disk takes that serves one read after the other. Only with kSimulated.
  virtual void disk_read(std::uint64_t size_bytes) = 0;

 protected:
  ~Control() = default;
};

/// Name of the function in the library that returns its Control.
inline constexpr const char* kControlSymbol = "fake_cuda_control";
using ControlFunction = Control*();

}  // namespace trash_panda::fake_cuda
