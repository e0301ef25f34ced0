#include "cuda/driver.h"

#include <dlfcn.h>
#include <utility>

#include <fmt/format.h>

namespace trash_panda::runtime::cuda {

namespace {

/// Fills in one function; remembers the first that the library lacks.
template <class Function>
void find(void* library, const char* name, Function*& function, std::string& missing) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr && missing.empty()) {
    missing = name;
  }
}

Functions find_all(void* library, std::string& missing) {
  Functions found;
  find(library, "cuInit", found.Init, missing);
  find(library, "cuGetErrorName", found.GetErrorName, missing);
  find(library, "cuDeviceGetCount", found.DeviceGetCount, missing);
  find(library, "cuDeviceGet", found.DeviceGet, missing);
  find(library, "cuDeviceGetName", found.DeviceGetName, missing);
  find(library, "cuDeviceGetUuid_v2", found.DeviceGetUuid_v2, missing);
  find(library, "cuDeviceTotalMem_v2", found.DeviceTotalMem_v2, missing);
  find(library, "cuDeviceGetAttribute", found.DeviceGetAttribute, missing);
  find(library, "cuDeviceGetPCIBusId", found.DeviceGetPCIBusId, missing);
  find(library, "cuDevicePrimaryCtxRetain", found.DevicePrimaryCtxRetain, missing);
  find(library, "cuDevicePrimaryCtxRelease_v2", found.DevicePrimaryCtxRelease_v2, missing);
  find(library, "cuCtxPushCurrent_v2", found.CtxPushCurrent_v2, missing);
  find(library, "cuCtxPopCurrent_v2", found.CtxPopCurrent_v2, missing);
  find(library, "cuMemGetInfo_v2", found.MemGetInfo_v2, missing);
  find(library, "cuMemAlloc_v2", found.MemAlloc_v2, missing);
  find(library, "cuMemFree_v2", found.MemFree_v2, missing);
  find(library, "cuMemHostAlloc", found.MemHostAlloc, missing);
  find(library, "cuMemFreeHost", found.MemFreeHost, missing);
  find(library, "cuMemcpyHtoDAsync_v2", found.MemcpyHtoDAsync_v2, missing);
  find(library, "cuMemcpyDtoHAsync_v2", found.MemcpyDtoHAsync_v2, missing);
  find(library, "cuStreamCreate", found.StreamCreate, missing);
  find(library, "cuStreamSynchronize", found.StreamSynchronize, missing);
  find(library, "cuStreamDestroy_v2", found.StreamDestroy_v2, missing);
  find(library, "cuStreamWaitEvent", found.StreamWaitEvent, missing);
  find(library, "cuEventCreate", found.EventCreate, missing);
  find(library, "cuEventDestroy_v2", found.EventDestroy_v2, missing);
  find(library, "cuEventRecord", found.EventRecord, missing);
  find(library, "cuEventQuery", found.EventQuery, missing);
  find(library, "cuEventSynchronize", found.EventSynchronize, missing);
  find(library, "cuMemHostRegister_v2", found.MemHostRegister_v2, missing);
  find(library, "cuMemHostUnregister", found.MemHostUnregister, missing);
  find(library, "cuMemcpyDtoDAsync_v2", found.MemcpyDtoDAsync_v2, missing);
  find(library, "cuModuleLoadData", found.ModuleLoadData, missing);
  find(library, "cuModuleUnload", found.ModuleUnload, missing);
  find(library, "cuModuleGetFunction", found.ModuleGetFunction, missing);
  find(library, "cuLaunchKernel", found.LaunchKernel, missing);
  return found;
}

}  // namespace

Result<Driver> Driver::load(const char* library) {
  void* handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return std::unexpected(
        Error(ErrorCode::kDevice, fmt::format("no NVIDIA driver ({} not found)", library)));
  }
  const std::shared_ptr<void> closing(handle, [](void* opened) { ::dlclose(opened); });
  std::string missing;
  const Functions functions = find_all(handle, missing);
  if (!missing.empty()) {
    return std::unexpected(Error(ErrorCode::kDevice, fmt::format("{} lacks {}", library, missing))
                               .with_hint("update the NVIDIA driver"));
  }
  TP_ASSIGN_OR_RETURN(Driver driver, from_functions(functions));
  driver.library_ = closing;
  return driver;
}

Result<Driver> Driver::from_functions(const Functions& functions) {
  Driver driver;
  driver.functions_ = functions;
  const Status status = functions.Init(0);
  if (status == kNoDevice) {
    return std::unexpected(
        Error(ErrorCode::kDevice, "the NVIDIA driver is there, but it finds no GPU"));
  }
  if (status != kSuccess) {
    return std::unexpected(
        Error(ErrorCode::kDevice,
              fmt::format("the NVIDIA driver does not start: {}", driver.describe(status))));
  }
  return driver;
}

std::string Driver::describe(Status status) const {
  const char* name = nullptr;
  if (functions_.GetErrorName(status, &name) != kSuccess || name == nullptr) {
    name = "unknown error";
  }
  return fmt::format("{} ({})", name, status);
}

}  // namespace trash_panda::runtime::cuda
