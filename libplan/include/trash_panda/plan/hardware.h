#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trash_panda::plan {

/// One GPU, as the driver describes it.
struct GpuInfo {
  std::string name;
  std::string uuid;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};

/// What planning knows about a machine. Plain data, filled by runtime::probe_hardware() or read
/// from a file.
struct Hardware {
  std::uint64_t ram_total_bytes = 0;
  std::uint64_t ram_available_bytes = 0;
  /// Memory limit of the control group that this process is in, and what it uses of it.
  std::optional<std::uint64_t> cgroup_limit_bytes;
  std::uint64_t cgroup_used_bytes = 0;
  std::string cgroup_path;  ///< For messages; empty without a limit.
  std::vector<GpuInfo> gpus;
  std::string gpu_note;  ///< Why there is no GPU: "no NVIDIA driver (libcuda.so.1)".
};

}  // namespace trash_panda::plan
