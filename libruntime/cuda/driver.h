#pragma once

// The CUDA driver API, loaded at run time: nothing of CUDA is needed to build, and one binary runs
// with and without a GPU. Only what is used is declared; driver_check.cpp compares the declarations
// with NVIDIA's where cuda.h is installed.

#include <cstddef>
#include <memory>
#include <string>

#include "trash_panda/base/error.h"

namespace trash_panda::runtime::cuda {

/// CUresult. 0 is success.
using Status = int;
inline constexpr Status kSuccess = 0;
inline constexpr Status kInvalidValue = 1;
inline constexpr Status kOutOfMemory = 2;
inline constexpr Status kNoDevice = 100;
inline constexpr Status kNotReady = 600;
/// CU_STREAM_NON_BLOCKING: a stream that does not wait for the default one.
inline constexpr unsigned kStreamNonBlocking = 1;
/// CU_EVENT_BLOCKING_SYNC: who waits for the event sleeps, instead of asking again and again.
inline constexpr unsigned kEventBlockingSync = 1;
/// CU_EVENT_DISABLE_TIMING: an event that only orders, which is cheaper.
inline constexpr unsigned kEventDisableTiming = 2;
/// CU_MEMHOSTREGISTER_PORTABLE: pinned for every context, not for the current one only.
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostAllocDeviceMapped = 2;  ///< At the same address on the device.
/// CUdevice.
using Device = int;
/// CUcontext.
using Context = struct ContextObject*;
/// CUstream.
using Stream = struct StreamObject*;
/// CUevent.
using Event = struct EventObject*;
/// CUmodule.
using Module = struct ModuleObject*;
/// CUfunction.
using Function = struct FunctionObject*;
/// CUdeviceptr: an address of the device, never one of ours.
using DeviceAddress = unsigned long long;
/// CUdevice_attribute.
using DeviceAttribute = int;
inline constexpr DeviceAttribute kMemoryClockKhz = 36;
inline constexpr DeviceAttribute kMemoryBusWidthBits = 37;
inline constexpr DeviceAttribute kComputeCapabilityMajor = 75;
inline constexpr DeviceAttribute kComputeCapabilityMinor = 76;
/// CUuuid.
struct Uuid {
  char bytes[16];  // NOLINT(modernize-avoid-c-arrays): NVIDIA's layout.
};

/// Functions of libcuda, by the names that they have there less "cu". The suffixes are the versions
/// that cuda.h maps the plain names to.
struct Functions {
  Status (*Init)(unsigned flags) = nullptr;
  Status (*GetErrorName)(Status status, const char** name) = nullptr;
  Status (*DeviceGetCount)(int* count) = nullptr;
  Status (*DeviceGet)(Device* device, int ordinal) = nullptr;
  Status (*DeviceGetName)(char* name, int size_bytes, Device device) = nullptr;
  Status (*DeviceGetUuid_v2)(Uuid* uuid, Device device) = nullptr;
  Status (*DeviceTotalMem_v2)(std::size_t* size_bytes, Device device) = nullptr;
  Status (*DeviceGetAttribute)(int* value, DeviceAttribute attribute, Device device) = nullptr;
  Status (*DeviceGetPCIBusId)(char* address, int size_bytes, Device device) = nullptr;
  Status (*DevicePrimaryCtxRetain)(Context* context, Device device) = nullptr;
  Status (*DevicePrimaryCtxRelease_v2)(Device device) = nullptr;
  Status (*CtxPushCurrent_v2)(Context context) = nullptr;
  Status (*CtxPopCurrent_v2)(Context* context) = nullptr;
  Status (*MemGetInfo_v2)(std::size_t* free_bytes, std::size_t* total_bytes) = nullptr;
  Status (*MemAlloc_v2)(DeviceAddress* address, std::size_t size_bytes) = nullptr;
  Status (*MemFree_v2)(DeviceAddress address) = nullptr;
  Status (*MemHostAlloc)(void** memory, std::size_t size_bytes, unsigned flags) = nullptr;
  Status (*MemFreeHost)(void* memory) = nullptr;
  Status (*MemcpyHtoDAsync_v2)(DeviceAddress target, const void* source, std::size_t size_bytes,
                               Stream stream) = nullptr;
  Status (*MemcpyDtoHAsync_v2)(void* target, DeviceAddress source, std::size_t size_bytes,
                               Stream stream) = nullptr;
  Status (*StreamCreate)(Stream* stream, unsigned flags) = nullptr;
  Status (*StreamSynchronize)(Stream stream) = nullptr;
  Status (*StreamDestroy_v2)(Stream stream) = nullptr;
  Status (*StreamWaitEvent)(Stream stream, Event event, unsigned flags) = nullptr;
  Status (*EventCreate)(Event* event, unsigned flags) = nullptr;
  Status (*EventDestroy_v2)(Event event) = nullptr;
  Status (*EventRecord)(Event event, Stream stream) = nullptr;
  Status (*EventQuery)(Event event) = nullptr;
  Status (*EventSynchronize)(Event event) = nullptr;
  Status (*MemHostRegister_v2)(void* memory, std::size_t size_bytes, unsigned flags) = nullptr;
  Status (*MemHostUnregister)(void* memory) = nullptr;
  Status (*MemcpyDtoDAsync_v2)(DeviceAddress target, DeviceAddress source, std::size_t size_bytes,
                               Stream stream) = nullptr;
  Status (*ModuleLoadData)(Module* module, const void* image) = nullptr;
  Status (*ModuleUnload)(Module module) = nullptr;
  Status (*ModuleGetFunction)(Function* function, Module module, const char* name) = nullptr;
  Status (*LaunchKernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, Stream stream, void** arguments,
                         void** extra) = nullptr;
};

/// What NVIDIA's driver installs.
inline constexpr const char* kDriverLibrary = "libcuda.so.1";

/// The driver, loaded and initialised.
class Driver {
 public:
  /// @param library  File name or path of the driver's library.
  /// @retval kDevice  It is not there, lacks a function, or cuInit() fails: the message says why
  ///                  there is no GPU, such as "no NVIDIA driver (libcuda.so.1 not found)".
  static Result<Driver> load(const char* library = kDriverLibrary);

  /// For tests: functions of their own, not yet initialised.
  static Result<Driver> from_functions(const Functions& functions);

  [[nodiscard]] const Functions& functions() const { return functions_; }
  /// "CUDA_ERROR_NO_DEVICE (100)".
  [[nodiscard]] std::string describe(Status status) const;

 private:
  std::shared_ptr<void> library_;  ///< Closed with the last copy.
  Functions functions_;
};

}  // namespace trash_panda::runtime::cuda
