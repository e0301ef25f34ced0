#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "trash_panda/base/error.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/runtime/io_engine.h"
#include "trash_panda/runtime/probe.h"

namespace trash_panda::runtime {

/// Where `path` lies: filesystem, device, space, direct reads. Nothing is measured and nothing
/// fails; what can't be found out stays empty.
[[nodiscard]] plan::DiskInfo describe_disk(const std::filesystem::path& path);

struct DiskProbeOptions {
  ProbeEffort effort = ProbeEffort::kQuick;
  bool may_write = true;               ///< A test file, where there is no checkpoint to read.
  std::uint64_t memory_bytes_max = 0;  ///< For requests in flight.
  IoBackend io = IoBackend::kAuto;     ///< As StreamOptions::io.
  StopFlag stop = nullptr;
};

/// Fills the rates of `disk`, made by describe_disk() for the same path. What can't be measured
/// stays empty and `disk.note` says why.
///
/// @param path  A checkpoint, whose own bytes are read, or a folder: the largest checkpoint file
///              in it is read, else a temporary file without a name, which always disappears.
/// @retval kInterrupted  The only failure: `options.stop` was set.
Result<void> measure_disk(const std::filesystem::path& path, const DiskProbeOptions& options,
                          plan::DiskInfo& disk);

/// The file whose bytes measure_disk() reads: `path` itself, or the largest checkpoint file in the
/// folder and its subfolders. Nothing where all are too small, or sparse: a hole is read from no
/// drive.
[[nodiscard]] std::optional<std::filesystem::path> find_sample_file(
    const std::filesystem::path& path);

}  // namespace trash_panda::runtime
