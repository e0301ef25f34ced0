#include "disk_probe.h"

#include <algorithm>
#include <fcntl.h>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"

#include "median.h"
#include "probe_effort.h"
#include "read_trial.h"
#include "scratch_file.h"

namespace trash_panda::runtime {

namespace {

/// Requests in flight that a drive needs longer for are no setting to stream with, and would keep
/// Ctrl-C waiting.
constexpr double kInFlightSecondsMax = 0.5;
/// A faster setting has to be this much faster to be worth more memory in flight.
constexpr double kWorthMoreMemory = 1.03;
/// Of a test file at least; and what it leaves free.
constexpr std::uint64_t kScratchBytesMin = 64 * kMiB;
constexpr std::uint64_t kScratchLeavesFreeBytes = 1 * kGiB;
/// Of a file that is read cold through the page cache: what is dropped from the cache for it.
constexpr std::uint64_t kBufferedBytesMax = 2 * kGiB;

/// What is read: a checkpoint's bytes, or a test file that lives as long as this.
struct DiskSample {
  ScratchFile scratch;
  File direct;  ///< Buffered where the filesystem refuses O_DIRECT.
  File buffered;
  std::string kind;
};

struct MeasuredSetting {
  ReadSetting setting;
  std::vector<double> rates;
};

Result<DiskSample> open_sample(const std::filesystem::path& path, const DiskProbeOptions& options,
                               const plan::DiskInfo& disk) {
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

/// Reads one sample in the settings of an effort.
class DiskMeasurement {
 public:
  DiskMeasurement(const DiskSample& sample, const DiskProbeOptions& options, ReadTrials trials)
      : sample_(sample),
        options_(options),
        effort_(effort_plan(options.effort)),
        trials_(std::move(trials)),
        direct_area_(sample.direct.size_bytes(), random_start(sample.direct.size_bytes())),
        buffered_area_(std::min(sample.buffered.size_bytes(), kBufferedBytesMax), 0) {}

  /// Rates of direct reads, and of the best setting once more.
  Result<void> measure_direct(plan::DiskInfo& disk) {
    TP_ASSIGN_OR_RETURN(std::vector<MeasuredSetting> settings, measure_grid(ReadMode::kDirect));
    MeasuredSetting& chosen = *choose(settings);
    TP_RETURN_IF_ERROR(measure_choice(ReadMode::kDirect, chosen));
    for (const MeasuredSetting& measured : settings) {
      disk.direct.push_back({.request_bytes = measured.setting.request_bytes,
                             .queue_depth = measured.setting.depth,
                             .read_bytes_per_s = whole_median(measured.rates)});
    }
    take_choice(chosen, disk);
    TP_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> latencies_ns,
                        read_latencies_ns(sample_.direct, direct_area_.size_bytes(),
                                          effort_.latency, options_.stop));
    disk.latency_ns_p50 = latencies_ns[latencies_ns.size() / 2];
    disk.latency_ns_p99 = latencies_ns[latencies_ns.size() * 99 / 100];
    // Through the page cache, in the setting that serves the drive best.
    MeasuredSetting buffered{.setting = chosen.setting, .rates = {}};
    TP_RETURN_IF_ERROR(measure_choice(ReadMode::kBuffered, buffered));
    disk.buffered_bytes_per_s = whole_median(buffered.rates);
    return {};
  }

  /// The same for a filesystem that refuses direct reads.
  Result<void> measure_buffered(plan::DiskInfo& disk) {
    TP_ASSIGN_OR_RETURN(std::vector<MeasuredSetting> settings, measure_grid(ReadMode::kBuffered));
    MeasuredSetting& chosen = *choose(settings);
    TP_RETURN_IF_ERROR(measure_choice(ReadMode::kBuffered, chosen));
    take_choice(chosen, disk);
    disk.buffered_bytes_per_s = disk.read_bytes_per_s;
    return {};
  }

 private:
  /// Somewhere in the file, so that a second probe does not find the bytes of the first in the
  /// drive's cache.
  static std::uint64_t random_start(std::uint64_t size_bytes) {
    std::random_device device;
    return std::uniform_int_distribution<std::uint64_t>(0, size_bytes / 2)(device);
  }

  static std::uint64_t whole_median(const std::vector<double>& rates) {
    return static_cast<std::uint64_t>(median(rates));
  }

  static void take_choice(const MeasuredSetting& chosen, plan::DiskInfo& disk) {
    disk.read_request_bytes = chosen.setting.request_bytes;
    disk.read_queue_depth = chosen.setting.depth;
    disk.read_bytes_per_s = whole_median(chosen.rates);
  }

  Result<double> run_trial(ReadMode mode, const ReadSetting& setting) {
    if (mode == ReadMode::kDirect) {
      return trials_.read_rate(sample_.direct, direct_area_, setting, effort_.trial, options_.stop);
    }
    // What the cache holds would be measured as RAM. Only clean pages go: nothing is lost.
    ::posix_fadvise(sample_.buffered.fd(), 0, static_cast<off_t>(buffered_area_.size_bytes()),
                    POSIX_FADV_DONTNEED);
    return trials_.read_rate(sample_.buffered, buffered_area_, setting, effort_.trial,
                             options_.stop);
  }

  Result<std::vector<MeasuredSetting>> measure_grid(ReadMode mode) {
    std::vector<MeasuredSetting> settings;
    double best_rate = 0;
    for (std::uint32_t round = 0; round < effort_.grid_rounds; ++round) {
      for (const std::uint64_t request_bytes : effort_.request_bytes) {
        for (const std::uint32_t depth : effort_.depths) {
          const ReadSetting setting{.depth = depth, .request_bytes = request_bytes};
          const auto in_flight = static_cast<double>(setting.in_flight_bytes());
          if (setting.in_flight_bytes() > options_.memory_bytes_max ||
              (!settings.empty() && in_flight > best_rate * kInFlightSecondsMax)) {
            continue;
          }
          TP_ASSIGN_OR_RETURN(const double rate, run_trial(mode, setting));
          best_rate = std::max(best_rate, rate);
          auto found = std::ranges::find(settings, setting, &MeasuredSetting::setting);
          if (found == settings.end()) {
            found = settings.insert(found, {.setting = setting, .rates = {}});
          }
          found->rates.push_back(rate);
        }
      }
    }
    return settings;
  }

  /// The fastest; among those about as fast, the one with least memory in flight.
  static std::vector<MeasuredSetting>::iterator choose(std::vector<MeasuredSetting>& settings) {
    const auto rate_of = [](const MeasuredSetting& measured) { return median(measured.rates); };
    const double best = rate_of(*std::ranges::max_element(settings, {}, rate_of));
    return std::ranges::min_element(settings, {}, [&](const MeasuredSetting& measured) {
      const bool is_fast = rate_of(measured) * kWorthMoreMemory >= best;
      return std::pair(!is_fast, measured.setting.in_flight_bytes());
    });
  }

  /// Measures it anew: the maximum of noisy figures is too high, and not what will be met.
  Result<void> measure_choice(ReadMode mode, MeasuredSetting& chosen) {
    chosen.rates.clear();
    for (std::uint32_t round = 0; round < effort_.choice_rounds; ++round) {
      TP_ASSIGN_OR_RETURN(const double rate, run_trial(mode, chosen.setting));
      chosen.rates.push_back(rate);
    }
    return {};
  }

  const DiskSample& sample_;
  const DiskProbeOptions& options_;
  const EffortPlan& effort_;
  ReadTrials trials_;
  ReadArea direct_area_;
  ReadArea buffered_area_;
};

void add_note(plan::DiskInfo& disk, std::string_view text) {
  disk.note += disk.note.empty() ? "" : "; ";
  disk.note += text;
}

Result<void> measure_sample(const DiskSample& sample, const DiskProbeOptions& options,
                            plan::DiskInfo& disk) {
  const EffortPlan& effort = effort_plan(options.effort);
  TP_ASSIGN_OR_RETURN(
      ReadTrials trials,
      ReadTrials::create(options.io, std::ranges::max(effort.depths), options.memory_bytes_max));
  DiskMeasurement measurement(sample, options, std::move(trials));
  disk.sample = sample.kind;
  disk.reads_direct = sample.direct.mode() == ReadMode::kDirect;
  if (disk.reads_direct) {
    disk.direct_alignment_bytes = std::max(sample.direct.direct_alignment().offset_bytes,
                                           sample.direct.direct_alignment().memory_bytes);
    Result<void> measured = measurement.measure_direct(disk);
    if (measured || measured.error().code() == ErrorCode::kInterrupted) {
      return measured;
    }
    // Some FUSE filesystems take the flag and refuse the reads.
    add_note(disk, fmt::format("direct reads fail ({})", measured.error().message()));
    disk.reads_direct = false;
    disk.direct.clear();
  } else {
    add_note(disk, "direct reads (O_DIRECT) are refused: reads pass through the page cache");
  }
  return measurement.measure_buffered(disk);
}

}  // namespace

Result<void> measure_disk(const std::filesystem::path& path, const DiskProbeOptions& options,
                          plan::DiskInfo& disk) {
  Result<DiskSample> sample = open_sample(path, options, disk);
  Result<void> measured =
      sample ? measure_sample(*sample, options, disk) : std::unexpected(sample.error());
  if (!measured && measured.error().code() != ErrorCode::kInterrupted) {
    add_note(disk, fmt::format("not measured: {}", measured.error().message()));
    return {};
  }
  return measured;
}

}  // namespace trash_panda::runtime
