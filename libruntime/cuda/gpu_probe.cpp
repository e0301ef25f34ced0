#include "cuda/gpu_probe.h"

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace trash_panda::runtime::cuda {

namespace {

Result<void> check(const Driver& driver, Status status, const char* what) {
  if (status == kSuccess) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kDevice, fmt::format("{}: {}", what, driver.describe(status))));
}

/// Free VRAM can only be asked for with a context: the primary one, which torch uses too, is
/// entered and left again, so that the caller's context stays current.
Result<std::uint64_t> free_bytes(const Driver& driver, Device device) {
  const Functions& cuda = driver.functions();
  Context context = nullptr;
  TP_RETURN_IF_ERROR(check(driver, cuda.DevicePrimaryCtxRetain(&context, device), "context"));
  std::size_t free = 0;
  std::size_t total = 0;
  Result<void> asked = check(driver, cuda.CtxPushCurrent_v2(context), "context");
  if (asked) {
    asked = check(driver, cuda.MemGetInfo_v2(&free, &total), "free memory");
    static_cast<void>(cuda.CtxPopCurrent_v2(&context));
  }
  static_cast<void>(cuda.DevicePrimaryCtxRelease_v2(device));
  TP_RETURN_IF_ERROR(std::move(asked));
  return free;
}

/// How fast the GPU can read its own memory, by its clock and width: what a driver knows without a
/// kernel. Memory of GPUs moves two bits a clock and line.
std::optional<std::uint64_t> memory_bytes_per_s(const Functions& cuda, Device device) {
  int clock_khz = 0;
  int width_bits = 0;
  if (cuda.DeviceGetAttribute(&clock_khz, kMemoryClockKhz, device) != kSuccess ||
      cuda.DeviceGetAttribute(&width_bits, kMemoryBusWidthBits, device) != kSuccess ||
      clock_khz <= 0 || width_bits <= 0) {
    return std::nullopt;
  }
  return 2 * static_cast<std::uint64_t>(clock_khz) * 1000 * static_cast<std::uint64_t>(width_bits) /
         8;
}

Result<plan::GpuInfo> probe_gpu(const Driver& driver, int ordinal) {
  const Functions& cuda = driver.functions();
  Device device = 0;
  TP_RETURN_IF_ERROR(check(driver, cuda.DeviceGet(&device, ordinal), "device"));
  std::array<char, 256> name = {};
  TP_RETURN_IF_ERROR(check(
      driver, cuda.DeviceGetName(name.data(), static_cast<int>(name.size()) - 1, device), "name"));
  Uuid uuid = {};
  TP_RETURN_IF_ERROR(check(driver, cuda.DeviceGetUuid_v2(&uuid, device), "UUID"));
  std::size_t total = 0;
  TP_RETURN_IF_ERROR(check(driver, cuda.DeviceTotalMem_v2(&total, device), "memory"));
  TP_ASSIGN_OR_RETURN(const std::uint64_t free, free_bytes(driver, device));
  plan::GpuInfo gpu{
      .name = name.data(), .uuid = to_string(uuid), .total_bytes = total, .free_bytes = free};
  int major = 0;
  int minor = 0;
  if (cuda.DeviceGetAttribute(&major, kComputeCapabilityMajor, device) == kSuccess &&
      cuda.DeviceGetAttribute(&minor, kComputeCapabilityMinor, device) == kSuccess) {
    gpu.compute_capability = fmt::format("{}.{}", major, minor);
  }
  gpu.memory_bytes_per_s = memory_bytes_per_s(cuda, device);
  std::array<char, 32> address = {};
  if (cuda.DeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device) ==
      kSuccess) {
    gpu.pci_address = address.data();
  }
  return gpu;
}

}  // namespace

std::string to_string(const Uuid& uuid) {
  std::string text = "GPU";
  for (std::size_t at = 0; at < sizeof(uuid.bytes); ++at) {
    const bool starts_group = at == 0 || at == 4 || at == 6 || at == 8 || at == 10;
    text += fmt::format("{}{:02x}", starts_group ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[at]));
  }
  return text;
}

void probe_gpus(const Result<Driver>& driver, plan::Hardware& hardware) {
  if (!driver) {
    hardware.gpu_note = driver.error().message();
    return;
  }
  int count = 0;
  const Result<void> counted =
      check(*driver, driver->functions().DeviceGetCount(&count), "counting GPUs");
  if (!counted) {
    hardware.gpu_note = counted.error().message();
    return;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Result<plan::GpuInfo> gpu = probe_gpu(*driver, ordinal);
    if (gpu) {
      hardware.gpus.push_back(*std::move(gpu));
    } else {
      hardware.gpu_note = fmt::format("GPU {}: {}", ordinal, gpu.error().message());
    }
  }
  if (count == 0) {
    hardware.gpu_note = "the NVIDIA driver is there, but it finds no GPU";
  }
}

}  // namespace trash_panda::runtime::cuda
