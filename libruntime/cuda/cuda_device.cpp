#include "cuda/cuda_device.h"

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

#include "cuda/self_test.h"
#include "pin_ledger.h"

namespace trash_panda::runtime::cuda {

namespace {

/// Our handles are the driver's.
Event event_of(const DeviceEvent& event) {
  return static_cast<Event>(event.get());
}
Stream stream_of(StreamHandle stream) {
  return std::bit_cast<Stream>(stream);
}
DeviceAddress address_of(std::span<const std::byte> memory) {
  return std::bit_cast<std::uintptr_t>(memory.data());
}

}  // namespace

Result<std::shared_ptr<CudaDevice>> CudaDevice::open(const CudaDeviceOptions& options) {
  TP_ASSIGN_OR_RETURN(Driver driver, Driver::load(options.library.c_str()));
  auto device = std::make_shared<CudaDevice>();
  device->ordinal_ = options.ordinal;
  TP_ASSIGN_OR_RETURN(device->context_, PrimaryContext::open(std::move(driver), options.ordinal));
  const PrimaryContext& context = *device->context_;
  TP_ASSIGN_OR_RETURN(device->expansion_, Expansion::load(device->context_));
  TP_RETURN_IF_ERROR(context.check("making a stream", &Functions::StreamCreate,
                                   &device->copy_stream_, kStreamNonBlocking));
  device->is_synchronous_ = options.is_synchronous;
  if (!options.is_synchronous) {
    if (const Result<void> tested = test_copies(context, device->copy_stream_); !tested) {
      device->is_synchronous_ = true;
      options.log(
          LogLevel::kWarning,
          fmt::format("copies to {} are waited for one by one, as its driver failed a test: "
                      "{}",
                      context.name(), tested.error().message()));
    }
  }
  if (!device->is_synchronous_) {
    device->pins_ = options.pinned_bytes_max
                        ? std::make_shared<PinLedger>(*options.pinned_bytes_max)
                        : PinLedger::of_process();
  }
  return device;
}

CudaDevice::~CudaDevice() {
  if (copy_stream_ != nullptr) {
    static_cast<void>(context_->call(&Functions::StreamDestroy_v2, copy_stream_));
  }
}

std::string CudaDevice::description() const {
  return fmt::format("{}, {} copies", context_->name(),
                     is_synchronous_ ? "synchronous" : "asynchronous");
}

Result<DeviceMemory> CudaDevice::allocate(std::uint64_t size_bytes) {
  if (size_bytes == 0) {
    return DeviceMemory();
  }
  DeviceAddress address = 0;
  const Status status = context_->call(&Functions::MemAlloc_v2, &address, size_bytes);
  if (status != kSuccess) {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    static_cast<void>(context_->call(&Functions::MemGetInfo_v2, &free_bytes, &total_bytes));
    return std::unexpected(context_->error("allocating", status)
                               .with_context(fmt::format(
                                   "{} of {} are free, {} were asked for", format_bytes(free_bytes),
                                   format_bytes(total_bytes), format_bytes(size_bytes))));
  }
  auto* bytes = std::bit_cast<std::byte*>(static_cast<std::uintptr_t>(address));
  return DeviceMemory{.bytes = {bytes, size_bytes},
                      .owner = std::shared_ptr<void>(bytes, [context = context_](void* memory) {
                        static_cast<void>(context->call(
                            &Functions::MemFree_v2,
                            static_cast<DeviceAddress>(std::bit_cast<std::uintptr_t>(memory))));
                      })};
}

Result<DeviceMemoryLeft> CudaDevice::memory_left() {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  TP_RETURN_IF_ERROR(context_->check("asking for its memory", &Functions::MemGetInfo_v2,
                                     &free_bytes, &total_bytes));
  return DeviceMemoryLeft{.free_bytes = free_bytes, .total_bytes = total_bytes};
}

Result<DeviceEvent> CudaDevice::make_event() {
  Event event = nullptr;
  TP_RETURN_IF_ERROR(context_->check("making an event", &Functions::EventCreate, &event,
                                     kEventBlockingSync | kEventDisableTiming));
  return DeviceEvent(event, [context = context_](void* made) {
    static_cast<void>(context->call(&Functions::EventDestroy_v2, static_cast<Event>(made)));
  });
}

StreamHandle CudaDevice::copy_stream() const {
  return std::bit_cast<StreamHandle>(copy_stream_);
}

Result<void> CudaDevice::copy(std::span<std::byte> target, std::span<const std::byte> source) {
  TP_ASSERT(target.size() == source.size());
  if (source.empty()) {
    return {};
  }
  TP_RETURN_IF_ERROR(context_->check("copying to it", &Functions::MemcpyHtoDAsync_v2,
                                     address_of(target), source.data(), source.size(),
                                     copy_stream_));
  return is_synchronous_ ? synchronize(copy_stream()) : Result<void>();
}

Result<void> CudaDevice::record(const DeviceEvent& event, StreamHandle stream) {
  return context_->check("recording an event", &Functions::EventRecord, event_of(event),
                         stream_of(stream));
}

Result<void> CudaDevice::wait(StreamHandle stream, const DeviceEvent& event) {
  if (!is_synchronous_ && context_->call(&Functions::StreamWaitEvent, stream_of(stream),
                                         event_of(event), 0U) == kSuccess) {
    return {};
  }
  return synchronize(event);  // Slower, but the same order.
}

Result<bool> CudaDevice::has_passed(const DeviceEvent& event) {
  const Status status = context_->call(&Functions::EventQuery, event_of(event));
  if (status != kSuccess && status != kNotReady) {
    return std::unexpected(context_->error("asking for an event", status));
  }
  return status == kSuccess;
}

Result<void> CudaDevice::synchronize(const DeviceEvent& event) {
  return context_->check("waiting for an event", &Functions::EventSynchronize, event_of(event));
}

Result<void> CudaDevice::synchronize(StreamHandle stream) {
  return context_->check("waiting for a stream", &Functions::StreamSynchronize, stream_of(stream));
}

Result<std::vector<TensorView>> CudaDevice::place(const TensorLayout& layout,
                                                  std::span<std::byte> stored,
                                                  std::span<std::byte> compute,
                                                  StreamHandle stream) {
  return expansion_->place(layout, stored, compute, stream_of(stream));
}

Result<void> CudaDevice::pin(std::span<std::byte> memory) {
  return context_->check("pinning host memory", &Functions::MemHostRegister_v2,
                         static_cast<void*>(memory.data()), memory.size(), kHostRegisterPortable);
}

Result<void> CudaDevice::unpin(std::span<std::byte> memory) {
  return context_->check("unpinning host memory", &Functions::MemHostUnregister,
                         static_cast<void*>(memory.data()));
}

}  // namespace trash_panda::runtime::cuda

namespace trash_panda::runtime {

Result<std::shared_ptr<Device>> open_cuda_device(const CudaDeviceOptions& options) {
  return cuda::CudaDevice::open(options);
}

std::optional<int> cuda_ordinal(const Device& device) {
  return device.cuda_ordinal();
}

}  // namespace trash_panda::runtime
