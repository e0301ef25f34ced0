// Compares our declarations of the CUDA driver API with NVIDIA's, where its header is installed;
// nothing of this reaches the program.

#if __has_include(<cuda.h>)

#include <type_traits>

#include <cuda.h>

#include "cuda/driver.h"

namespace trash_panda::runtime::cuda {

namespace {

/// Our stand-in for one of NVIDIA's types. Enumerations are passed as the int that they are, and
/// handles as the pointers that they are.
template <class Theirs>
struct Ours {
  using Type = Theirs;
};
template <>
struct Ours<CUresult> {
  using Type = Status;
};
template <>
struct Ours<CUcontext> {
  using Type = Context;
};
template <>
struct Ours<CUcontext*> {
  using Type = Context*;
};
template <>
struct Ours<CUstream> {
  using Type = Stream;
};
template <>
struct Ours<CUstream*> {
  using Type = Stream*;
};
template <>
struct Ours<CUevent> {
  using Type = Event;
};
template <>
struct Ours<CUevent*> {
  using Type = Event*;
};
template <>
struct Ours<CUmodule> {
  using Type = Module;
};
template <>
struct Ours<CUmodule*> {
  using Type = Module*;
};
template <>
struct Ours<CUfunction> {
  using Type = Function;
};
template <>
struct Ours<CUfunction*> {
  using Type = Function*;
};
template <>
struct Ours<CUdevice_attribute> {
  using Type = DeviceAttribute;
};
template <>
struct Ours<CUuuid*> {
  using Type = Uuid*;
};

template <class Theirs>
struct OurFunction;
template <class Returned, class... Arguments>
struct OurFunction<Returned (*)(Arguments...)> {
  using Type = typename Ours<Returned>::Type (*)(typename Ours<Arguments>::Type...);
};

static_assert(sizeof(CUresult) == sizeof(Status) && sizeof(CUuuid) == sizeof(Uuid));
static_assert(std::is_same_v<CUdevice, Device> && std::is_pointer_v<CUcontext>);
static_assert(CUDA_SUCCESS == kSuccess && CUDA_ERROR_NO_DEVICE == kNoDevice);
static_assert(CUDA_ERROR_INVALID_VALUE == kInvalidValue &&
              CUDA_ERROR_OUT_OF_MEMORY == kOutOfMemory);
static_assert(CUDA_ERROR_NOT_READY == kNotReady);
static_assert(CU_STREAM_NON_BLOCKING == kStreamNonBlocking);
static_assert(CU_EVENT_BLOCKING_SYNC == kEventBlockingSync);
static_assert(CU_EVENT_DISABLE_TIMING == kEventDisableTiming);
static_assert(CU_MEMHOSTREGISTER_PORTABLE == kHostRegisterPortable);
static_assert(CU_MEMHOSTALLOC_PORTABLE == kHostAllocPortable);
static_assert(CU_MEMHOSTALLOC_DEVICEMAP == kHostAllocDeviceMapped);
static_assert(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE == kMemoryClockKhz);
static_assert(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH == kMemoryBusWidthBits);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == kComputeCapabilityMajor);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == kComputeCapabilityMinor);

// cuda.h maps some plain names to a version with a suffix: `&cuX` is the one that is meant.
#define TP_CHECK_FUNCTION(ours, theirs) \
  static_assert(std::is_same_v<decltype(Functions::ours), OurFunction<decltype(&(theirs))>::Type>)

TP_CHECK_FUNCTION(Init, cuInit);
TP_CHECK_FUNCTION(GetErrorName, cuGetErrorName);
TP_CHECK_FUNCTION(DeviceGetCount, cuDeviceGetCount);
TP_CHECK_FUNCTION(DeviceGet, cuDeviceGet);
TP_CHECK_FUNCTION(DeviceGetName, cuDeviceGetName);
TP_CHECK_FUNCTION(DeviceGetUuid_v2, cuDeviceGetUuid_v2);
TP_CHECK_FUNCTION(DeviceTotalMem_v2, cuDeviceTotalMem_v2);
TP_CHECK_FUNCTION(DeviceGetAttribute, cuDeviceGetAttribute);
TP_CHECK_FUNCTION(DeviceGetPCIBusId, cuDeviceGetPCIBusId);
TP_CHECK_FUNCTION(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain);
TP_CHECK_FUNCTION(DevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2);
TP_CHECK_FUNCTION(CtxPushCurrent_v2, cuCtxPushCurrent_v2);
TP_CHECK_FUNCTION(CtxPopCurrent_v2, cuCtxPopCurrent_v2);
TP_CHECK_FUNCTION(MemGetInfo_v2, cuMemGetInfo_v2);
TP_CHECK_FUNCTION(MemAlloc_v2, cuMemAlloc_v2);
TP_CHECK_FUNCTION(MemFree_v2, cuMemFree_v2);
TP_CHECK_FUNCTION(MemHostAlloc, cuMemHostAlloc);
TP_CHECK_FUNCTION(MemFreeHost, cuMemFreeHost);
TP_CHECK_FUNCTION(MemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2);
TP_CHECK_FUNCTION(MemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2);
TP_CHECK_FUNCTION(StreamCreate, cuStreamCreate);
TP_CHECK_FUNCTION(StreamSynchronize, cuStreamSynchronize);
TP_CHECK_FUNCTION(StreamDestroy_v2, cuStreamDestroy_v2);
TP_CHECK_FUNCTION(StreamWaitEvent, cuStreamWaitEvent);
TP_CHECK_FUNCTION(EventCreate, cuEventCreate);
TP_CHECK_FUNCTION(EventDestroy_v2, cuEventDestroy_v2);
TP_CHECK_FUNCTION(EventRecord, cuEventRecord);
TP_CHECK_FUNCTION(EventQuery, cuEventQuery);
TP_CHECK_FUNCTION(EventSynchronize, cuEventSynchronize);
TP_CHECK_FUNCTION(MemHostRegister_v2, cuMemHostRegister_v2);
TP_CHECK_FUNCTION(MemHostUnregister, cuMemHostUnregister);
TP_CHECK_FUNCTION(MemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2);
TP_CHECK_FUNCTION(ModuleLoadData, cuModuleLoadData);
TP_CHECK_FUNCTION(ModuleUnload, cuModuleUnload);
TP_CHECK_FUNCTION(ModuleGetFunction, cuModuleGetFunction);
TP_CHECK_FUNCTION(LaunchKernel, cuLaunchKernel);

}  // namespace

}  // namespace trash_panda::runtime::cuda

#endif
