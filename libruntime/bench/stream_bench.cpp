#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/runtime/bench.h"
#include "trash_panda/runtime/streamer.h"

#include "bench/stream_idle.h"
#include "bench/turns.h"
#include "probe/memory_work.h"
#include "probe/plain_read.h"
#include "probe/setting_grid.h"
#include "tensor_maker.h"

namespace trash_panda::runtime {

namespace {

using StreamClock = std::chrono::steady_clock;

/// Where a pack is too small for any setting of a probe: as a pack is read whose plan says nothing.
constexpr ReadSetting kSmallPackSetting = {.depth = 4, .request_bytes = 2 * kMiB};

double seconds_since(StreamClock::time_point began) {
  return std::chrono::duration<double>(StreamClock::now() - began).count();
}

/// Where the blocks lie that a pass reads from disk.
class DiskExtents {
 public:
  static Result<DiskExtents> open(const std::filesystem::path& pack, const Streamer& streamer) {
    DiskExtents extents;
    std::map<std::uint32_t, const File*> shards;
    for (std::size_t block = 0; block < streamer.block_count(); ++block) {
      if (streamer.tier(block) != format::Tier::kDisk) {
        continue;
      }
      const format::PackedExtent& extent = streamer.block(block);
      const File*& shard = shards[extent.shard_index];
      if (shard == nullptr) {
        TP_ASSIGN_OR_RETURN(File file,
                            open_shard(pack / streamer.manifest().shards[extent.shard_index].name,
                                       streamer.manifest().page_bytes));
        shard = &extents.files_.emplace_back(std::move(file));
      }
      extents.ranges_.push_back(
          {.file = shard, .offset_bytes = extent.offset_bytes, .size_bytes = extent.stored_bytes});
    }
    return extents;
  }

  [[nodiscard]] const std::vector<PlainRange>& ranges() const { return ranges_; }
  [[nodiscard]] const File& first_file() const { return files_.front(); }

 private:
  static Result<File> open_shard(const std::filesystem::path& path, std::uint64_t page_bytes) {
    TP_ASSIGN_OR_RETURN(File file, File::open(path, ReadMode::kDirect));
    const DirectAlignment alignment = file.direct_alignment();
    const std::uint32_t coarsest = std::max(alignment.memory_bytes, alignment.offset_bytes);
    if (coarsest != 0 && page_bytes % coarsest != 0) {
      return File::open(path, ReadMode::kBuffered);
    }
    return file;
  }

  std::deque<File> files_;  ///< Ranges point into it.
  std::vector<PlainRange> ranges_;
};

/// The setting in which the file is read fastest without an engine, or about so with less memory.
Result<ReadSetting> find_plain_setting(const File& file, const plan::Hardware& hardware,
                                       StopFlag stop) {
  const EffortPlan& effort = effort_plan(ProbeEffort::kQuick);
  TP_ASSIGN_OR_RETURN(const AlignedBuffer memory,
                      AlignedBuffer::create(measuring_bytes(hardware, effort)));
  std::memset(memory.data(), 1, memory.size_bytes());
  ReadArea area(file.size_bytes(), 0);
  TP_ASSIGN_OR_RETURN(
      std::vector<MeasuredSetting> settings,
      measure_settings(
          effort,
          {.in_flight_bytes_max = memory.size_bytes(), .request_bytes_max = file.size_bytes()},
          [&](const ReadSetting& setting) {
            return plain_read_rate(file, area, setting, memory, effort.trial, stop);
          }));
  return settings.empty() ? kSmallPackSetting : choose_setting(settings)->setting;
}

/// Streams one pack again and again.
class StreamPasses {
 public:
  StreamPasses(Streamer& streamer, StopFlag stop) : streamer_(streamer), stop_(stop) {}

  /// @return Seconds.
  Result<double> run() {
    const auto began = StreamClock::now();
    for (std::size_t block = 0; block < streamer_.block_count(); ++block) {
      TP_RETURN_IF_ERROR(check_stop(stop_));
      TP_ASSIGN_OR_RETURN(const BlockLease lease, streamer_.acquire(block));
    }
    return seconds_since(began);
  }

  /// Seconds from the end of one pass to the end of the next, after which the drive is idle.
  Result<double> run_in_stride() {
    TP_RETURN_IF_ERROR(run());
    TP_ASSIGN_OR_RETURN(const double taken_s, run());
    wait_until_idle(streamer_, stop_);
    return taken_s;
  }

  /// The first pass, which also finds out what the blocks are.
  Result<void> run_first(StreamBench& bench) {
    const auto began = StreamClock::now();
    for (std::size_t block = 0; block < streamer_.block_count(); ++block) {
      TP_RETURN_IF_ERROR(check_stop(stop_));
      TP_ASSIGN_OR_RETURN(const BlockLease lease, streamer_.acquire(block));
      for (const TensorView& tensor : lease.tensors()) {
        bench.weight_bytes += tensor.size_bytes;
      }
    }
    bench.first_pass_s = seconds_since(began);
    const StreamStats stats = streamer_.stats();
    bench.first_wait_s = static_cast<double>(stats.wait_ns) * 1e-9;
    bench.ram_read_bytes = stats.pass_read_bytes_ram;
    wait_until_idle(streamer_, stop_);
    return {};
  }

  /// Whether tensors are made at each use, on the CPU.
  [[nodiscard]] bool makes_tensors() const {
    for (std::size_t block = 0; block < streamer_.block_count(); ++block) {
      if (streamer_.tier(block) == format::Tier::kRam && !streamer_.is_resident(block)) {
        return true;
      }
    }
    return false;
  }

 private:
  Streamer& streamer_;
  StopFlag stop_;
};

/// Passes beside plain reads of the same bytes.
Result<void> beside_reads(const DiskExtents& extents, const plan::Hardware& hardware,
                          Streamer& streamer, StreamPasses& passes, const BenchOptions& options,
                          StreamBench& bench, BenchReport& report) {
  TP_ASSIGN_OR_RETURN(const ReadSetting setting,
                      find_plain_setting(extents.first_file(), hardware, options.stop));
  const auto weight_bytes = static_cast<double>(bench.weight_bytes);
  BenchSeries streamed = {.name = streamer.stats().io_description, .bytes_per_s = {}};
  BenchSeries plain = {
      .name = fmt::format("plain reads {}, {}", read_mode_name(extents.first_file().mode()),
                          setting.description()),
      .bytes_per_s = {}};
  const auto pass = [&]() -> Result<double> {
    TP_ASSIGN_OR_RETURN(const double taken_s, passes.run_in_stride());
    bench.pass_s.push_back(taken_s);
    bench.disk_read_bytes = streamer.stats().pass_read_bytes_disk;
    return weight_bytes / taken_s;
  };
  const auto read = [&]() -> Result<double> {
    TP_ASSIGN_OR_RETURN(const PlainRead taken,
                        read_plainly(extents.ranges(), setting, 0, options.stop));
    bench.plain_s.push_back(taken.seconds);
    bench.plain_read_bytes = taken.read_bytes;
    return weight_bytes / taken.seconds;
  };
  const std::array turns = {Turn{.measure = read, .bytes_per_s = &plain.bytes_per_s},
                            Turn{.measure = pass, .bytes_per_s = &streamed.bytes_per_s}};
  TP_RETURN_IF_ERROR(take_turns(turns, WarmUp::kNone, options));
  report.lines.push_back(
      {.what = "stream", .measured = std::move(streamed), .limit = std::move(plain)});
  return {};
}

/// Passes that read nothing.
Result<void> beside_copies(const plan::Hardware& hardware, StreamPasses& passes,
                           const BenchOptions& options, StreamBench& bench, BenchReport& report) {
  BenchSeries streamed = {.name = "all in RAM, decoded", .bytes_per_s = {}};
  const auto pass = [&]() -> Result<double> {
    TP_ASSIGN_OR_RETURN(const double taken_s, passes.run_in_stride());
    bench.pass_s.push_back(taken_s);
    return static_cast<double>(bench.weight_bytes) / taken_s;
  };
  if (!passes.makes_tensors()) {
    const std::array turns = {Turn{.measure = pass, .bytes_per_s = &streamed.bytes_per_s}};
    TP_RETURN_IF_ERROR(take_turns(turns, WarmUp::kNone, options));
    report.left_out.push_back(
        {.what = "stream",
         .why = "nothing is read or decoded: all blocks wait in RAM as they are used"});
    return {};
  }
  const std::size_t thread_count = tensor_thread_count();
  TP_ASSIGN_OR_RETURN(const CopyWork work, CopyWork::create(measuring_bytes(
                                               hardware, effort_plan(ProbeEffort::kQuick))));
  BenchSeries copied = {
      .name = fmt::format("memcpy, {} thread{}", thread_count, thread_count == 1 ? "" : "s"),
      .bytes_per_s = {}};
  const std::array turns = {Turn{.measure = work_turn(thread_count, work.copy(thread_count)),
                                 .bytes_per_s = &copied.bytes_per_s},
                            Turn{.measure = pass, .bytes_per_s = &streamed.bytes_per_s}};
  TP_RETURN_IF_ERROR(take_turns(turns, WarmUp::kNone, options));
  report.lines.push_back(
      {.what = "stream", .measured = std::move(streamed), .limit = std::move(copied)});
  return {};
}

}  // namespace

Result<StreamBench> bench_stream(const std::filesystem::path& pack, const plan::Hardware& hardware,
                                 const BenchOptions& options, BenchReport& report) {
  announce(options, "the stream");
  StreamOptions stream;
  stream.io = options.io;
  stream.stop = options.stop;
  stream.log = options.log;
  const auto began = StreamClock::now();
  TP_ASSIGN_OR_RETURN(Streamer streamer, Streamer::open(pack, stream));
  StreamBench bench = {.block_count = streamer.block_count(), .open_s = seconds_since(began)};
  if (bench.block_count == 0) {
    report.left_out.push_back({.what = "stream", .why = "the pack has no blocks"});
    return bench;
  }
  StreamPasses passes(streamer, options.stop);
  TP_RETURN_IF_ERROR(passes.run_first(bench));
  TP_ASSIGN_OR_RETURN(const DiskExtents extents, DiskExtents::open(pack, streamer));
  TP_RETURN_IF_ERROR(
      extents.ranges().empty()
          ? beside_copies(hardware, passes, options, bench, report)
          : beside_reads(extents, hardware, streamer, passes, options, bench, report));
  return bench;
}

}  // namespace trash_panda::runtime
