#include "disk_sample.h"

#include <algorithm>
#include <fcntl.h>
#include <random>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

#include "plain_read.h"

namespace trash_panda::runtime {

namespace {

/// Of a test file at least; and what it leaves free.
constexpr std::uint64_t kScratchBytesMin = 64 * kMiB;
constexpr std::uint64_t kScratchLeavesFreeBytes = 1 * kGiB;
/// Of a file that is read cold through the page cache: what is dropped from the cache for it.
constexpr std::uint64_t kBufferedBytesMax = 2 * kGiB;

/// Somewhere in the file, so that a second probe does not find the bytes of the first in the
/// drive's cache.
std::uint64_t random_start(std::uint64_t size_bytes) {
  std::random_device device;
  return std::uniform_int_distribution<std::uint64_t>(0, size_bytes / 2)(device);
}

}  // namespace

Result<DiskSample> open_disk_sample(const std::filesystem::path& path,
                                    const DiskProbeOptions& options, const plan::DiskInfo& disk) {
  DiskSample sample;
  if (const auto file = find_sample_file(path)) {
    TP_ASSIGN_OR_RETURN(sample.direct, File::open(*file, ReadMode::kDirect));
    TP_ASSIGN_OR_RETURN(sample.buffered, File::open(*file, ReadMode::kBuffered));
    sample.kind = "checkpoint";
    return sample;
  }
  const EffortPlan& effort = effort_plan(options.effort);
  if (!options.may_write || effort.scratch_bytes == 0) {
    return std::unexpected(Error(ErrorCode::kDevice, "no checkpoint file large enough to read"));
  }
  const std::uint64_t spare_bytes =
      disk.free_bytes - std::min(disk.free_bytes, kScratchLeavesFreeBytes);
  if (spare_bytes < 2 * kScratchBytesMin) {
    return std::unexpected(
        Error(ErrorCode::kOutput,
              fmt::format("{} free is too little for a test file", format_bytes(disk.free_bytes))));
  }
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::is_directory(path, error) ? path : path.parent_path();
  TP_ASSIGN_OR_RETURN(
      sample.scratch,
      ScratchFile::create(folder.empty() ? "." : folder,
                          {.size_bytes = std::min(effort.scratch_bytes, spare_bytes / 2),
                           .seconds = effort.scratch.count(),
                           .stop = options.stop}));
  if (sample.scratch.size_bytes() < kScratchBytesMin) {
    return std::unexpected(
        Error(ErrorCode::kDevice,
              fmt::format("only {} could be written in {:.0f} s",
                          format_bytes(sample.scratch.size_bytes()), effort.scratch.count())));
  }
  TP_ASSIGN_OR_RETURN(sample.direct, sample.scratch.open(ReadMode::kDirect));
  TP_ASSIGN_OR_RETURN(sample.buffered, sample.scratch.open(ReadMode::kBuffered));
  sample.kind = "test file";
  return sample;
}

SampleReads::SampleReads(const DiskSample& sample, StopFlag stop)
    : sample_(sample),
      stop_(stop),
      direct_area_(sample.direct.size_bytes(), random_start(sample.direct.size_bytes())),
      buffered_area_(std::min(sample.buffered.size_bytes(), kBufferedBytesMax), 0) {}

const File& SampleReads::file(ReadMode mode) const {
  return mode == ReadMode::kDirect ? sample_.direct : sample_.buffered;
}

ReadArea& SampleReads::area(ReadMode mode) {
  return mode == ReadMode::kDirect ? direct_area_ : buffered_area_;
}

void SampleReads::drop_cache(ReadMode mode) const {
  if (mode == ReadMode::kBuffered) {
    // What the cache holds would be measured as RAM. Only clean pages go: nothing is lost.
    ::posix_fadvise(sample_.buffered.fd(), 0, static_cast<off_t>(buffered_area_.size_bytes()),
                    POSIX_FADV_DONTNEED);
  }
}

Result<double> SampleReads::read_rate(ReadTrials& trials, ReadMode mode, const ReadSetting& setting,
                                      Seconds duration) {
  drop_cache(mode);
  return trials.read_rate(file(mode), area(mode), setting, duration, stop_);
}

Result<double> SampleReads::plain_rate(const AlignedBuffer& memory, ReadMode mode,
                                       const ReadSetting& setting, Seconds duration) {
  drop_cache(mode);
  return plain_read_rate(file(mode), area(mode), setting, memory, duration, stop_);
}

}  // namespace trash_panda::runtime
