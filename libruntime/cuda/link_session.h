#pragma once

#include <cstdint>
#include <string>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/error.h"

#include "cuda/driver.h"
#include "probe/probe_effort.h"

namespace trash_panda::runtime::cuda {

/// Which way one copy between host and GPU goes, and from or to what memory of the host.
enum class LinkCopy {
  kToPinned,
  kToPageable,
  kFromPinned,
  kFromPageable,
  kToDuplex,  ///< To the GPU from pinned memory, while the other direction is busy.
};

/// Everything that the copies of one GPU need, given back in reverse order.
///
/// Works in the device's primary context, which is current until this is destroyed. Not
/// thread-safe.
class LinkSession {
 public:
  /// @param driver  Outlives this.
  explicit LinkSession(const Driver& driver) : driver_(driver) {}
  LinkSession(const LinkSession&) = delete;
  LinkSession& operator=(const LinkSession&) = delete;
  ~LinkSession();

  /// Takes memory of host and GPU. Once.
  ///
  /// @param uuid              Of the GPU, as plan::GpuInfo has it.
  /// @param memory_bytes_max  Of the host.
  /// @retval kDevice  The driver refuses, or does not know the GPU.
  /// @retval kFailed  The system refuses memory.
  Result<void> open(const std::string& uuid, std::uint64_t memory_bytes_max);

  /// Bytes of one copy.
  [[nodiscard]] std::uint64_t copy_bytes() const { return copy_bytes_; }
  /// Copies that take about `duration`. Wakes the link up.
  /// @retval kDevice  The driver refuses.
  Result<std::uint64_t> count_for(LinkCopy copy, Seconds duration);
  /// Bytes per second of `count` copies, queued at once.
  /// @retval kDevice  The driver refuses.
  Result<double> rate(LinkCopy copy, std::uint64_t count);

 private:
  [[nodiscard]] Result<void> check(Status status, const char* what) const;
  Result<Device> find_gpu(const std::string& uuid) const;
  [[nodiscard]] Status queue(LinkCopy copy) const;
  Result<double> seconds(LinkCopy copy, std::uint64_t count);

  const Driver& driver_;
  Device device_ = 0;
  std::uint64_t copy_bytes_ = 0;
  bool is_retained_ = false;
  bool is_current_ = false;
  DeviceAddress to_device_ = 0;
  DeviceAddress from_device_ = 0;
  void* to_pinned_ = nullptr;
  void* from_pinned_ = nullptr;
  Stream to_stream_ = nullptr;
  Stream from_stream_ = nullptr;
  AlignedBuffer pageable_;
};

}  // namespace trash_panda::runtime::cuda
