#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/plan/hardware.h"

#include "disk_probe.h"
#include "probe_effort.h"
#include "read_trial.h"
#include "scratch_file.h"

namespace trash_panda::runtime {

/// What is read of a drive: a checkpoint's bytes, or a test file that lives as long as this.
struct DiskSample {
  ScratchFile scratch;
  File direct;  ///< Buffered where the filesystem refuses O_DIRECT.
  File buffered;
  std::string kind;  ///< "checkpoint" or "test file".
};

/// Opens what find_sample_file() finds, else writes a test file.
///
/// @param path  As measure_disk() has it.
/// @param disk  Made by describe_disk() for the same path.
/// @retval kDevice       There is no checkpoint, and a test file is not wanted, or the drive is
///                       too slow for one.
/// @retval kOutput       A test file can't be written.
/// @retval kInterrupted  `options.stop` was set.
Result<DiskSample> open_disk_sample(const std::filesystem::path& path,
                                    const DiskProbeOptions& options, const plan::DiskInfo& disk);

/// Reads a sample in one setting after the other, each from where the last ended.
class SampleReads {
 public:
  /// @param sample  Outlives this.
  SampleReads(const DiskSample& sample, StopFlag stop);

  /// Through an engine. @see ReadTrials::read_rate
  Result<double> read_rate(ReadTrials& trials, ReadMode mode, const ReadSetting& setting,
                           Seconds duration);
  /// By threads that do nothing else. @see plain_read_rate
  Result<double> plain_rate(const AlignedBuffer& memory, ReadMode mode, const ReadSetting& setting,
                            Seconds duration);
  [[nodiscard]] std::uint64_t direct_area_bytes() const { return direct_area_.size_bytes(); }

 private:
  [[nodiscard]] const File& file(ReadMode mode) const;
  [[nodiscard]] ReadArea& area(ReadMode mode);
  void drop_cache(ReadMode mode) const;

  const DiskSample& sample_;
  StopFlag stop_;
  ReadArea direct_area_;
  ReadArea buffered_area_;
};

}  // namespace trash_panda::runtime
