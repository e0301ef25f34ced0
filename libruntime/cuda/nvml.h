#pragma once

// NVIDIA's management library, loaded at run time like the driver: it alone knows the PCIe link.
// Only what is used is declared.

#include <memory>
#include <string>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/hardware.h"

namespace trash_panda::runtime::cuda {

/// nvmlReturn_t; 0 is success.
using NvmlStatus = int;
inline constexpr NvmlStatus kNvmlSuccess = 0;
/// nvmlDevice_t.
using NvmlDevice = struct NvmlDeviceHandle*;

/// Functions of libnvidia-ml, by the names that they have there less "nvml".
struct NvmlFunctions {
  NvmlStatus (*Init_v2)() = nullptr;
  NvmlStatus (*Shutdown)() = nullptr;
  NvmlStatus (*SystemGetDriverVersion)(char* version, unsigned size_bytes) = nullptr;
  NvmlStatus (*DeviceGetHandleByUUID)(const char* uuid, NvmlDevice* device) = nullptr;
  NvmlStatus (*DeviceGetCurrPcieLinkGeneration)(NvmlDevice device, unsigned* value) = nullptr;
  NvmlStatus (*DeviceGetCurrPcieLinkWidth)(NvmlDevice device, unsigned* value) = nullptr;
  NvmlStatus (*DeviceGetMaxPcieLinkGeneration)(NvmlDevice device, unsigned* value) = nullptr;
  NvmlStatus (*DeviceGetMaxPcieLinkWidth)(NvmlDevice device, unsigned* value) = nullptr;
};

/// What NVIDIA's driver installs beside libcuda.
inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

/// The library, loaded and initialised; shut down with this object.
class Nvml {
 public:
  /// @retval kDevice  It is not there, lacks a function, or does not start.
  static Result<Nvml> load(const char* library = kNvmlLibrary);
  /// For tests: functions of their own, not yet initialised.
  static Result<Nvml> from_functions(const NvmlFunctions& functions);

  [[nodiscard]] const NvmlFunctions& functions() const { return functions_; }

 private:
  std::shared_ptr<void> library_;  ///< Closed after the last copy has shut down.
  std::shared_ptr<void> session_;
  NvmlFunctions functions_;
};

/// Fills driver version and links of the GPUs. What the library does not tell stays empty: a
/// report without them is still one.
void read_gpu_links(const Result<Nvml>& nvml, plan::Hardware& hardware);

}  // namespace trash_panda::runtime::cuda
