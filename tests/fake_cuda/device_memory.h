#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fake_cuda.h"
#include "vector_clock.h"

namespace trash_panda::fake_cuda {

/// What a piece of work does with memory of a device.
struct Access {
  DeviceRange range;
  bool is_write;
};

/// Memory of all devices: real memory, filled with rubbish when it is handed out and given back,
/// and never given to the system before reset(), so that late accesses are seen.
///
/// Every access is compared with earlier ones of the same bytes: of two of which one writes, the
/// later must be ordered after the earlier by a stream or by events. Not thread-safe.
class DeviceMemory {
 public:
  /// Whoever does the work, for messages and for the order.
  struct Doer {
    std::string name;  ///< "a copy on stream 2".
    Actor actor;
    const VectorClock* clock;  ///< Its own work is in it.
  };

  /// @retval kOutOfMemory  Of the device's limit.
  Status allocate(int device, std::uint64_t limit_bytes, std::size_t size_bytes,
                  DeviceAddress* address);
  /// @param host_clock  What the caller knows to be done: no access of it may still be under way.
  ///                    Null: nothing is under way.
  Status free(DeviceAddress address, const VectorClock* host_clock);
  /// Notes accesses, and what is wrong about them.
  /// @retval kIllegalAddress  Of memory that is not there, or not this device's.
  Status note(int device, const std::vector<Access>& accesses, const Doer& doer);

  [[nodiscard]] std::uint64_t used_bytes(int device) const;
  [[nodiscard]] int allocation_count() const;
  [[nodiscard]] std::vector<std::string>& violations() { return violations_; }

 private:
  struct Past {
    Access access;
    std::string name;
    Actor actor;
    std::uint64_t count;  ///< Of its actor's work.
  };
  struct Allocation {
    std::shared_ptr<std::byte> memory;
    std::size_t size_bytes;
    int device;
    bool is_freed = false;
    std::vector<Past> past;
  };

  Allocation* find(DeviceRange range);
  void check(Allocation& allocation, const Access& access, const Doer& doer);

  std::map<DeviceAddress, Allocation> allocations_;
  std::vector<std::string> violations_;
};

}  // namespace trash_panda::fake_cuda
