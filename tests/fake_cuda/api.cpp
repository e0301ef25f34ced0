// The functions that the library exports under the names of NVIDIA's.

#include <array>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "machine.h"

using namespace trash_panda::fake_cuda;      // NOLINT: a file of C functions.
using namespace trash_panda::runtime::cuda;  // NOLINT

namespace {

/// What a call needs before it does anything.
enum class Needs {
  kNothing,
  kContext,
  kEnding,         ///< A context; and it gives something back, whatever error it reports.
  kEndingContext,  ///< The same without a context.
};

template <class Action>
Status call(const char* function, Needs needs, const Action& action) {
  Machine& machine = Machine::instance();
  Lock lock = machine.lock();
  const Status status = machine.enter(lock, function);
  const bool needs_context = needs == Needs::kContext || needs == Needs::kEnding;
  if (status != kSuccess && (needs == Needs::kNothing || needs == Needs::kContext)) {
    return status;
  }
  if (needs_context && machine.current_device() < 0) {
    return kInvalidContext;
  }
  const Status done = action(machine, lock);
  return status != kSuccess ? status : done;
}

Status check_device(const Machine& machine, Device device) {
  constexpr Status kInvalidDevice = 101;
  return device >= 0 && device < machine.settings().device_count ? kSuccess : kInvalidDevice;
}

}  // namespace

#define TP_API extern "C" __attribute__((visibility("default")))
// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names.
// The call is of the type that the code under test takes it for.
#define TP_SAME(name) static_assert(std::is_same_v<decltype(&cu##name), decltype(Functions::name)>)
// A function of libcuda: its parameters, what it needs, and what it does with `machine` and `lock`.
#define TP_CUDA(name, needs, parameters, ...)                             \
  TP_API Status cu##name parameters {                                     \
    return call("cu" #name, Needs::needs,                                 \
                [&]([[maybe_unused]] Machine & machine,                   \
                    [[maybe_unused]] Lock & lock) -> Status __VA_ARGS__); \
  }                                                                       \
  TP_SAME(name);

TP_API Control* fake_cuda_control() {
  return &Machine::instance();
}

TP_API Status cuGetErrorName(Status status, const char** name) {
  constexpr auto kNames = std::to_array<std::pair<Status, const char*>>(
      {{kSuccess, "CUDA_SUCCESS"},
       {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
       {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
       {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
       {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
       {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
       {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
       {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
       {kNotFound, "CUDA_ERROR_NOT_FOUND"},
       {kNotReady, "CUDA_ERROR_NOT_READY"},
       {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
       {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
       {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
       {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
       {kUnknownError, "CUDA_ERROR_UNKNOWN"}});
  for (const auto& [known, text] : kNames) {
    if (known == status) {
      *name = text;
      return kSuccess;
    }
  }
  *name = nullptr;
  return kInvalidValue;
}
TP_SAME(GetErrorName);

TP_CUDA(Init, kNothing, (unsigned), { return machine.init(); })
TP_CUDA(DeviceGetCount, kNothing, (int* count), {
  *count = machine.settings().device_count;
  return kSuccess;
})
TP_CUDA(DeviceGet, kNothing, (Device * device, int ordinal), {
  *device = ordinal;
  return check_device(machine, ordinal);
})
TP_CUDA(DeviceGetName, kNothing, (char* name, int size_bytes, Device device), {
  std::snprintf(name, static_cast<std::size_t>(size_bytes), "Fake GPU %d", device);
  return check_device(machine, device);
})
TP_CUDA(DeviceGetUuid_v2, kNothing, (Uuid * uuid, Device device), {
  std::memset(uuid->bytes, device + 1, sizeof uuid->bytes);
  return check_device(machine, device);
})
TP_CUDA(DeviceTotalMem_v2, kNothing, (std::size_t* size_bytes, Device device), {
  *size_bytes = machine.settings().vram_bytes;
  return check_device(machine, device);
})
TP_CUDA(DeviceGetAttribute, kNothing, (int* value, DeviceAttribute attribute, Device device), {
  *value = attribute == kComputeCapabilityMajor ? 9 : 0;
  return check_device(machine, device);
})
TP_CUDA(DeviceGetPCIBusId, kNothing, (char* address, int size_bytes, Device device), {
  std::snprintf(address, static_cast<std::size_t>(size_bytes), "0000:%02x:00.0", device + 1);
  return check_device(machine, device);
})
TP_CUDA(DevicePrimaryCtxRetain, kNothing, (Context * context, Device device),
        { return machine.retain(device, context); })
TP_CUDA(DevicePrimaryCtxRelease_v2, kEndingContext, (Device device),
        { return machine.release(device); })
TP_CUDA(CtxPushCurrent_v2, kNothing, (Context context), { return machine.push(context); })
TP_CUDA(CtxPopCurrent_v2, kEnding, (Context * context), { return machine.pop(context); })
TP_CUDA(MemGetInfo_v2, kContext, (std::size_t* free_bytes, std::size_t* total_bytes), {
  *free_bytes = machine.free_bytes(machine.current_device());
  *total_bytes = machine.settings().vram_bytes;
  return kSuccess;
})
TP_CUDA(MemAlloc_v2, kContext, (DeviceAddress * address, std::size_t size_bytes),
        { return machine.allocate(size_bytes, address); })
TP_CUDA(MemFree_v2, kEnding, (DeviceAddress address), { return machine.free(address); })
TP_CUDA(MemHostAlloc, kContext, (void** memory, std::size_t size_bytes, unsigned),
        { return machine.host_allocate(size_bytes, memory); })
TP_CUDA(MemFreeHost, kEnding, (void* memory), { return machine.host_free(memory); })
TP_CUDA(MemHostRegister_v2, kContext, (void* memory, std::size_t size_bytes, unsigned),
        { return machine.register_host(memory, size_bytes); })
// Memory stays registered when this fails, unless the context is gone and all registrations with
// it.
TP_API Status cuMemHostUnregister(void* memory) {
  Machine& machine = Machine::instance();
  Lock lock = machine.lock();
  const Status status = machine.enter(lock, "cuMemHostUnregister");
  if (status != kSuccess && machine.sticky() == kSuccess) {
    return status;
  }
  const Status done = machine.unregister_host(memory);
  return status != kSuccess ? status : done;
}
TP_SAME(MemHostUnregister);
TP_CUDA(MemcpyHtoDAsync_v2, kContext,
        (DeviceAddress target, const void* source, std::size_t size_bytes, Stream stream),
        { return machine.copy_to_device(target, source, size_bytes, stream); })
TP_CUDA(MemcpyDtoHAsync_v2, kContext,
        (void* target, DeviceAddress source, std::size_t size_bytes, Stream stream),
        { return machine.copy_from_device(lock, target, source, size_bytes, stream); })
TP_CUDA(MemcpyDtoDAsync_v2, kContext,
        (DeviceAddress target, DeviceAddress source, std::size_t size_bytes, Stream stream),
        { return machine.copy_on_device(target, source, size_bytes, stream); })
TP_CUDA(StreamCreate, kContext, (Stream * stream, unsigned),
        { return machine.create_stream(stream); })
TP_CUDA(StreamSynchronize, kContext, (Stream stream),
        { return machine.synchronize_stream(lock, stream); })
TP_CUDA(StreamDestroy_v2, kEnding, (Stream stream),
        { return machine.destroy_stream(lock, stream); })
TP_CUDA(StreamWaitEvent, kContext, (Stream stream, Event event, unsigned),
        { return machine.wait_event(stream, event); })
TP_CUDA(EventCreate, kContext, (Event * event, unsigned), { return machine.create_event(event); })
TP_CUDA(EventDestroy_v2, kEnding, (Event event), { return machine.destroy_event(event); })
TP_CUDA(EventRecord, kContext, (Event event, Stream stream),
        { return machine.record(event, stream); })
TP_CUDA(EventQuery, kContext, (Event event), { return machine.query(event); })
TP_CUDA(EventSynchronize, kContext, (Event event),
        { return machine.synchronize_event(lock, event); })
TP_CUDA(ModuleLoadData, kContext, (Module * module, const void* image),
        { return machine.load_module(image, module); })
TP_CUDA(ModuleUnload, kEnding, (Module module), { return machine.unload_module(module); })
TP_CUDA(ModuleGetFunction, kContext, (Function * function, Module, const char* name), {
  for (const Kernel& kernel : kernels()) {
    if (std::strcmp(kernel.name, name) == 0) {
      // Never written through: a handle is only given back to us.
      *function = reinterpret_cast<Function>(const_cast<Kernel*>(&kernel));
      return kSuccess;
    }
  }
  return kNotFound;
})
TP_CUDA(LaunchKernel, kContext,
        (Function function, unsigned grid_x, unsigned, unsigned, unsigned block_x, unsigned,
         unsigned, unsigned, Stream stream, void** arguments, void**),
        {
          if (grid_x == 0 || block_x == 0 || block_x > 1024) {
            return kInvalidValue;
          }
          return machine.launch(reinterpret_cast<const Kernel*>(function),
                                std::uint64_t{grid_x} * block_x, stream, arguments);
        })
// NOLINTEND(readability-identifier-naming)
