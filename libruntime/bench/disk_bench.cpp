#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/units.h"
#include "trash_panda/runtime/bench.h"

#include "bench/turns.h"
#include "probe/disk_probe.h"
#include "probe/disk_sample.h"
#include "probe/median.h"
#include "probe/read_trial.h"
#include "probe/setting_grid.h"

namespace trash_panda::runtime {

namespace {

/// Of one turn. Long enough for drives that are slow to get going.
constexpr Seconds kDiskTurn{0.4};
/// Of the largest setting of a probe; touching more would only keep Ctrl-C waiting.
constexpr std::uint64_t kInFlightBytesMax = 256 * kMiB;

/// One way to read a drive, and how fast it was.
struct DiskSeries {
  BenchSeries series;
  std::function<Result<double>(Seconds)> read;  ///< Bytes per second.
};

/// How one drive is read. Engine and plain reads take turns, so that they share memory.
class DiskReads {
 public:
  DiskReads(const DiskSample& sample, ReadTrials trials, ReadMode mode, StopFlag stop)
      : reads_(sample, stop), trials_(std::move(trials)), mode_(mode) {}

  DiskSeries through_engine(const ReadSetting& setting) {
    return {.series = series(trials_.engine_name(), setting),
            .read = [this, setting](Seconds time) {
              return reads_.read_rate(trials_, mode_, setting, time);
            }};
  }
  DiskSeries plainly(const ReadSetting& setting) {
    return {.series = series("plain reads", setting), .read = [this, setting](Seconds time) {
              return reads_.plain_rate(trials_.memory(), mode_, setting, time);
            }};
  }
  [[nodiscard]] std::uint64_t memory_bytes() const { return trials_.memory().size_bytes(); }

 private:
  [[nodiscard]] BenchSeries series(std::string_view how, const ReadSetting& setting) const {
    return {.name = fmt::format("{} {}, {}", how, read_mode_name(mode_), setting.description()),
            .bytes_per_s = {}};
  }

  SampleReads reads_;
  ReadTrials trials_;
  ReadMode mode_;
};

/// The settings of a probe, measured as `way` reads.
template <class Way>
Result<std::vector<MeasuredSetting>> probe_settings(const DiskReads& disk, const Way& way) {
  const EffortPlan& effort = effort_plan(ProbeEffort::kQuick);
  return measure_settings(
      effort, {.in_flight_bytes_max = disk.memory_bytes()},
      [&](const ReadSetting& setting) { return way(setting).read(effort.trial); });
}

Result<void> disk_line(DiskReads& disk, const BenchOptions& options, BenchReport& report) {
  const auto engine = [&](const ReadSetting& setting) { return disk.through_engine(setting); };
  const auto plain = [&](const ReadSetting& setting) { return disk.plainly(setting); };
  TP_ASSIGN_OR_RETURN(std::vector<MeasuredSetting> by_engine, probe_settings(disk, engine));
  TP_ASSIGN_OR_RETURN(std::vector<MeasuredSetting> by_threads, probe_settings(disk, plain));
  const ReadSetting planned = choose_setting(by_engine)->setting;
  const ReadSetting fastest = fastest_setting(by_engine)->setting;
  const ReadSetting plain_best = choose_setting(by_threads)->setting;
  // The measured one first, then whatever may be the limit: what was fastest by chance need not be.
  std::vector<DiskSeries> all = {engine(planned), plain(plain_best)};
  if (plain_best != planned) {
    all.push_back(plain(planned));
  }
  if (fastest != planned) {
    all.push_back(engine(fastest));
  }
  std::vector<Turn> turns;
  for (DiskSeries& one : all) {
    turns.push_back({.measure = [&one] { return one.read(kDiskTurn); },
                     .bytes_per_s = &one.series.bytes_per_s});
  }
  TP_RETURN_IF_ERROR(take_turns(turns, WarmUp::kRound, options));
  const auto limit = std::ranges::max_element(
      all.begin() + 1, all.end(), {},
      [](const DiskSeries& one) { return median(one.series.bytes_per_s); });
  report.lines.push_back({.what = "disk",
                          .measured = std::move(all.front().series),
                          .limit = std::move(limit->series)});
  return {};
}

Result<void> sample_line(const DiskSample& sample, ReadMode mode, std::uint64_t memory_bytes,
                         const BenchOptions& options, BenchReport& report) {
  const std::uint32_t depth_max = std::ranges::max(effort_plan(ProbeEffort::kQuick).depths);
  TP_ASSIGN_OR_RETURN(ReadTrials trials, ReadTrials::create(options.io, depth_max, memory_bytes));
  DiskReads disk(sample, std::move(trials), mode, options.stop);
  return disk_line(disk, options, report);
}

Result<void> sample_lines(const DiskSample& sample, std::uint64_t memory_bytes,
                          const BenchOptions& options, BenchReport& report) {
  if (sample.direct.mode() == ReadMode::kDirect) {
    Result<void> measured = sample_line(sample, ReadMode::kDirect, memory_bytes, options, report);
    // Some FUSE filesystems take the flag and refuse the reads.
    if (measured || measured.error().code() != ErrorCode::kFailed) {
      return measured;
    }
  }
  return sample_line(sample, ReadMode::kBuffered, memory_bytes, options, report);
}

}  // namespace

Result<void> bench_disk(const std::filesystem::path& path, const plan::Hardware& hardware,
                        const BenchOptions& options, BenchReport& report) {
  announce(options, "disk");
  // For requests in flight: as many as any setting has.
  const std::uint64_t memory_bytes =
      std::min(measuring_bytes(hardware, effort_plan(ProbeEffort::kQuick)), kInFlightBytesMax);
  const Result<DiskSample> sample = open_disk_sample(path,
                                                     {.effort = ProbeEffort::kQuick,
                                                      .memory_bytes_max = memory_bytes,
                                                      .io = options.io,
                                                      .stop = options.stop},
                                                     describe_disk(path));
  Result<void> measured = sample ? sample_lines(*sample, memory_bytes, options, report)
                                 : std::unexpected(sample.error());
  if (!measured && measured.error().code() != ErrorCode::kInterrupted) {
    report.left_out.push_back({.what = "disk", .why = measured.error().message()});
    return {};
  }
  return measured;
}

}  // namespace trash_panda::runtime
