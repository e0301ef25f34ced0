#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "trash_panda/base/error.h"
#include "trash_panda/base/log.h"

namespace trash_panda::runtime {

/// What computes with the weights. Opened once, shared by all streamers of models on it.
class Device;

/// A queue of work on a device: CUDA's stream as an integer, as torch gives it
/// (`torch.cuda.current_stream().cuda_stream`). 0 is the default stream, and the CPU's only one.
using StreamHandle = std::uintptr_t;

struct CudaDeviceOptions {
  /// As torch counts devices: among those that CUDA_VISIBLE_DEVICES leaves.
  int ordinal = 0;
  /// The driver's library, a file name or a path.
  std::string library = "libcuda.so.1";
  /// Most host memory that is pinned for this device; nothing: all devices of the process share 40
  /// % of the smaller of RAM and the control group's limit.
  std::optional<std::uint64_t> pinned_bytes_max = {};
  /// Copies as if the driver had failed the self-test.
  bool is_synchronous = false;
  Logger log = silent_logger();
};

/// Opens an NVIDIA GPU in its primary context, which torch uses too, and tests whether the driver
/// does what asynchronous copies rely on: ranges pinned exactly beside one another, and streams
/// that wait for each other's events. If not, one warning says why, and every copy is waited for.
///
/// @retval kDevice  There is no driver or no such GPU, this program was built without kernels, or
///                  the driver refuses; the message says which.
Result<std::shared_ptr<Device>> open_cuda_device(const CudaDeviceOptions& options);

/// The number of a GPU, as it was opened; nothing: it is the CPU.
[[nodiscard]] std::optional<int> cuda_ordinal(const Device& device);

}  // namespace trash_panda::runtime
