#include "cuda/nvml.h"

#include <array>
#include <cstdint>
#include <dlfcn.h>
#include <utility>

#include <fmt/format.h>

namespace trash_panda::runtime::cuda {

namespace {

template <class Function>
bool find_nvml(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all_nvml(void* library, NvmlFunctions& found) {
  return find_nvml(library, "nvmlInit_v2", found.Init_v2) &&
         find_nvml(library, "nvmlShutdown", found.Shutdown) &&
         find_nvml(library, "nvmlSystemGetDriverVersion", found.SystemGetDriverVersion) &&
         find_nvml(library, "nvmlDeviceGetHandleByUUID", found.DeviceGetHandleByUUID) &&
         find_nvml(library, "nvmlDeviceGetCurrPcieLinkGeneration",
                   found.DeviceGetCurrPcieLinkGeneration) &&
         find_nvml(library, "nvmlDeviceGetCurrPcieLinkWidth", found.DeviceGetCurrPcieLinkWidth) &&
         find_nvml(library, "nvmlDeviceGetMaxPcieLinkGeneration",
                   found.DeviceGetMaxPcieLinkGeneration) &&
         find_nvml(library, "nvmlDeviceGetMaxPcieLinkWidth", found.DeviceGetMaxPcieLinkWidth);
}

/// 0 where the library does not know, as for GPUs that are no PCIe cards.
std::uint64_t ask_nvml(NvmlStatus (*function)(NvmlDevice, unsigned*), NvmlDevice device) {
  unsigned value = 0;
  return function(device, &value) == kNvmlSuccess ? value : 0;
}

}  // namespace

Result<Nvml> Nvml::load(const char* library) {
  void* handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return std::unexpected(Error(ErrorCode::kDevice, fmt::format("{} not found", library)));
  }
  const std::shared_ptr<void> closing(handle, [](void* opened) { ::dlclose(opened); });
  NvmlFunctions functions;
  if (!find_all_nvml(handle, functions)) {
    return std::unexpected(Error(ErrorCode::kDevice, fmt::format("{} lacks functions", library))
                               .with_hint("update the NVIDIA driver"));
  }
  TP_ASSIGN_OR_RETURN(Nvml nvml, from_functions(functions));
  nvml.library_ = closing;
  return nvml;
}

Result<Nvml> Nvml::from_functions(const NvmlFunctions& functions) {
  if (const NvmlStatus status = functions.Init_v2(); status != kNvmlSuccess) {
    return std::unexpected(
        Error(ErrorCode::kDevice, fmt::format("NVML does not start ({})", status)));
  }
  Nvml nvml;
  nvml.functions_ = functions;
  // Members are destroyed last first: the session ends while the library is still loaded.
  nvml.session_ = std::shared_ptr<void>(nullptr, [functions](void*) { functions.Shutdown(); });
  return nvml;
}

void read_gpu_links(const Result<Nvml>& nvml, plan::Hardware& hardware) {
  if (!nvml) {
    return;
  }
  const NvmlFunctions& functions = nvml->functions();
  std::array<char, 96> version = {};
  if (functions.SystemGetDriverVersion(version.data(), version.size() - 1) != kNvmlSuccess) {
    version.front() = '\0';
  }
  for (plan::GpuInfo& gpu : hardware.gpus) {
    gpu.driver = version.data();
    NvmlDevice device = nullptr;
    if (functions.DeviceGetHandleByUUID(gpu.uuid.c_str(), &device) != kNvmlSuccess) {
      continue;
    }
    gpu.link = {.generation = ask_nvml(functions.DeviceGetCurrPcieLinkGeneration, device),
                .width = ask_nvml(functions.DeviceGetCurrPcieLinkWidth, device)};
    gpu.link_max = {.generation = ask_nvml(functions.DeviceGetMaxPcieLinkGeneration, device),
                    .width = ask_nvml(functions.DeviceGetMaxPcieLinkWidth, device)};
  }
}

}  // namespace trash_panda::runtime::cuda
