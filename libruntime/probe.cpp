#include "trash_panda/runtime/probe.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <span>
#include <string>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/checksum.h"

#include "cuda/driver.h"
#include "cuda/gpu_probe.h"
#include "cuda/link_probe.h"
#include "cuda/nvml.h"
#include "memory_limits.h"
#include "probe/disk_probe.h"
#include "probe/memory_rates.h"
#include "probe/probe_effort.h"
#include "probe/system_probe.h"
#include "probe/topology.h"

namespace trash_panda::runtime {

namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

/// Of what a rate depends on and what a shared home folder needs to tell machines apart. Not of
/// the kernel: an update would cost everyone a measurement and change little.
std::string machine_fingerprint(const plan::Hardware& hardware) {
  std::ifstream id_file("/etc/machine-id");
  std::string id;
  std::getline(id_file, id);
  std::string text = fmt::format("{}\n{}\n{}\n{}\n", id, hardware.cpu.model,
                                 hardware.cpu.thread_count, hardware.ram_total_bytes);
  for (const plan::GpuInfo& gpu : hardware.gpus) {
    text += gpu.uuid + "\n";
  }
  constexpr std::size_t kFingerprintDigits = 16;
  return format::checksum_hex(std::as_bytes(std::span(text))).substr(0, kFingerprintDigits);
}

}  // namespace

plan::Hardware probe_hardware() {
  plan::Hardware hardware;
  read_system("/", hardware);
  read_memory_limits("/proc", "/sys/fs/cgroup", hardware);
  cuda::probe_gpus(cuda::Driver::load(), hardware);
  return hardware;
}

void describe_hardware(const std::vector<std::filesystem::path>& paths, plan::Hardware& hardware) {
  hardware.disks.clear();
  for (const std::filesystem::path& path : paths) {
    hardware.disks.push_back(describe_disk(path));
    read_drive_link(hardware.disks.back());
  }
  if (!hardware.gpus.empty()) {
    cuda::read_gpu_links(cuda::Nvml::load(), hardware);
  }
  read_topology(hardware);
  hardware.fingerprint = machine_fingerprint(hardware);
}

Result<void> measure_hardware(const ProbeOptions& options, plan::Hardware& hardware) {
  const EffortPlan& effort = effort_plan(options.effort);
  const std::uint64_t memory_bytes = measuring_bytes(hardware, effort);
  const auto announce = [&](const std::string& step) {
    if (options.on_step) {
      options.on_step(step);
    }
  };
  for (plan::DiskInfo& disk : hardware.disks) {
    if (disk.read_bytes_per_s) {
      continue;
    }
    announce(fmt::format("disk {}", printable(disk.path)));
    TP_RETURN_IF_ERROR(measure_disk(disk.path,
                                    {.effort = options.effort,
                                     .may_write = options.may_write,
                                     .memory_bytes_max = memory_bytes,
                                     .io = options.io,
                                     .stop = options.stop},
                                    disk));
    if (disk.read_bytes_per_s) {
      disk.measured_at = utc_now();
    }
  }
  if (hardware.measured_at.empty()) {
    announce("RAM and CPU");
    measure_memory_rates(effort, memory_bytes, options.stop, hardware);
    if (!hardware.gpus.empty()) {
      announce("links to GPUs");
      if (const Result<cuda::Driver> driver = cuda::Driver::load()) {
        cuda::measure_links(*driver, effort, memory_bytes, options.stop, hardware);
      }
    }
  }
  if (options.stop != nullptr && *options.stop) {
    return std::unexpected(Error(ErrorCode::kInterrupted, "measuring was stopped"));
  }
  if (hardware.measured_at.empty()) {
    hardware.measured_at = utc_now();
  }
  return {};
}

}  // namespace trash_panda::runtime
