#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/runtime/io_engine.h"

namespace trash_panda::runtime {

/// Reads what the system says about itself, memory and GPUs; nothing is measured and nothing
/// fails: what can't be found out stays zero, with a note.
///
/// RAM from /proc/meminfo, limits from cgroup v2 or v1 (the tightest of the path), GPUs from the
/// CUDA driver loaded at run time. Takes milliseconds, less a GPU's start.
[[nodiscard]] plan::Hardware probe_hardware();

/// Adds to probe_hardware()'s answer what takes longer to ask for, still without measuring: cores,
/// NUMA nodes and PCIe links (hwloc, NVML), where each of `paths` lies, and the machine's
/// fingerprint.
void describe_hardware(const std::vector<std::filesystem::path>& paths, plan::Hardware& hardware);

/// How thorough measurements are. Times are for one path; each more adds its disk's.
enum class ProbeEffort {
  kBrief,  ///< About 3 s: a few settings, checkpoints only.
  kQuick,  ///< About 10 s: every setting twice.
  kFull,   ///< About 60 s: every setting five times.
};

struct ProbeOptions {
  ProbeEffort effort = ProbeEffort::kQuick;
  /// Whether a path without a checkpoint gets a temporary file to read. It has no name, so that it
  /// disappears whatever happens.
  bool may_write = true;
  /// As StreamOptions::io: what reads disks here is what streams later.
  IoBackend io = IoBackend::kAuto;
  /// Called with what is measured next, such as "disk /data". May be empty.
  std::function<void(std::string_view step)> on_step = {};
  StopFlag stop = nullptr;
};

/// Measures what describe_hardware() found and fills in the rates that are missing: each disk
/// through the engine that streaming uses, copies in RAM, expansion, copies to and from GPUs. A
/// disk that can't be measured has a note that says why.
///
/// @retval kInterrupted  The only failure: `options.stop` was set. Nothing is left behind.
Result<void> measure_hardware(const ProbeOptions& options, plan::Hardware& hardware);

}  // namespace trash_panda::runtime
