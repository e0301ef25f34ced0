#include "disk_probe.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "disk_sample.h"
#include "median.h"
#include "probe_effort.h"
#include "read_trial.h"
#include "setting_grid.h"

namespace trash_panda::runtime {

namespace {

/// Reads one sample in the settings of an effort.
class DiskMeasurement {
 public:
  DiskMeasurement(const DiskSample& sample, const DiskProbeOptions& options, ReadTrials trials)
      : sample_(sample),
        options_(options),
        effort_(effort_plan(options.effort)),
        trials_(std::move(trials)),
        reads_(sample, options.stop) {}

  /// Rates of direct reads, and of the best setting once more.
  Result<void> measure_direct(plan::DiskInfo& disk) {
    TP_ASSIGN_OR_RETURN(std::vector<MeasuredSetting> settings, measure_grid(ReadMode::kDirect));
    MeasuredSetting& chosen = *choose_setting(settings);
    TP_RETURN_IF_ERROR(measure_choice(ReadMode::kDirect, chosen));
    for (const MeasuredSetting& measured : settings) {
      disk.direct.push_back({.request_bytes = measured.setting.request_bytes,
                             .queue_depth = measured.setting.depth,
                             .read_bytes_per_s = whole_median(measured.rates)});
    }
    take_choice(chosen, disk);
    TP_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> latencies_ns,
                        read_latencies_ns(sample_.direct, reads_.direct_area_bytes(),
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
    MeasuredSetting& chosen = *choose_setting(settings);
    TP_RETURN_IF_ERROR(measure_choice(ReadMode::kBuffered, chosen));
    take_choice(chosen, disk);
    disk.buffered_bytes_per_s = disk.read_bytes_per_s;
    return {};
  }

 private:
  static std::uint64_t whole_median(const std::vector<double>& rates) {
    return static_cast<std::uint64_t>(median(rates));
  }

  static void take_choice(const MeasuredSetting& chosen, plan::DiskInfo& disk) {
    disk.read_request_bytes = chosen.setting.request_bytes;
    disk.read_queue_depth = chosen.setting.depth;
    disk.read_bytes_per_s = whole_median(chosen.rates);
  }

  Result<double> run_trial(ReadMode mode, const ReadSetting& setting) {
    return reads_.read_rate(trials_, mode, setting, effort_.trial);
  }

  Result<std::vector<MeasuredSetting>> measure_grid(ReadMode mode) {
    return measure_settings(effort_, {.in_flight_bytes_max = options_.memory_bytes_max},
                            [&](const ReadSetting& setting) { return run_trial(mode, setting); });
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
  SampleReads reads_;
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
  Result<DiskSample> sample = open_disk_sample(path, options, disk);
  Result<void> measured =
      sample ? measure_sample(*sample, options, disk) : std::unexpected(sample.error());
  if (!measured && measured.error().code() != ErrorCode::kInterrupted) {
    add_note(disk, fmt::format("not measured: {}", measured.error().message()));
    return {};
  }
  return measured;
}

}  // namespace trash_panda::runtime
