#include "stream_runs.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <numeric>
#include <optional>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <malloc.h>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/units.h"

#include "bench/stream_idle.h"
#include "probe/plain_read.h"

namespace {

std::atomic<std::uint64_t> allocation_count = 0;

}  // namespace

// Counts what the whole program allocates. Not inlined: the compiler would see new and free() meet.
[[gnu::noinline]] void* operator new(std::size_t size_bytes) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size_bytes == 0 ? 1 : size_bytes)) {
    return memory;
  }
  throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace trash_panda::bench {

namespace {

using Clock = std::chrono::steady_clock;
using runtime::PlainRange;
using runtime::PlainRead;
using runtime::read_plainly;
using runtime::ReadSetting;

constexpr std::array<ReadSetting, 4> kPlainSettings = {
    {{4, 1 * kMiB}, {4, 4 * kMiB}, {16, 4 * kMiB}, {16, 1 * kMiB}}};
constexpr int kCalibrationRounds = 3;
constexpr std::uint64_t kPageBytes = 4096;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

double cpu_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// A number of /proc/self/io.
std::uint64_t io_counter(std::string_view wanted) {
  std::ifstream io("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  while (io >> name >> value) {
    if (name == wanted) {
      return value;
    }
  }
  return 0;
}

std::uint64_t mapped_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  statm >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::int64_t heap_bytes() {
  const auto info = ::mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

/// The computation: as fast as one core reads memory, and different for different weights.
std::uint64_t read_weights(std::span<const std::byte> weights) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= weights.size();
       at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, weights.data() + at, sizeof word);
    sum += word;
  }
  return sum;
}

/// Where the source has the weights of the disk blocks, in whole pages.
class SourceBytes {
 public:
  static Result<SourceBytes> open(const SyntheticPack& model) {
    SourceBytes bytes;
    TP_ASSIGN_OR_RETURN(const format::Manifest manifest, format::read_manifest(model.pack));
    TP_ASSIGN_OR_RETURN(File file, File::open(model.source, ReadMode::kDirect));
    bytes.file_ = std::make_unique<File>(std::move(file));
    std::uint64_t offset_bytes = model.source_data_offset_bytes / kPageBytes * kPageBytes;
    for (const format::PackedExtent& extent : manifest.extents) {
      if (extent.tier == format::Tier::kDisk) {
        bytes.ranges_.push_back({.file = bytes.file_.get(),
                                 .offset_bytes = offset_bytes,
                                 .size_bytes = model.block_bytes / kPageBytes * kPageBytes});
      }
      offset_bytes += model.block_bytes / kPageBytes * kPageBytes;
    }
    return bytes;
  }

  [[nodiscard]] const std::vector<PlainRange>& ranges() const { return ranges_; }
  [[nodiscard]] std::uint64_t size_bytes() const {
    return std::transform_reduce(ranges_.begin(), ranges_.end(), std::uint64_t{0}, std::plus(),
                                 [](const PlainRange& range) { return range.size_bytes; });
  }

 private:
  std::unique_ptr<File> file_;
  std::vector<PlainRange> ranges_;
};

/// Everything that takes turns.
class Rounds {
 public:
  Rounds(const RunSettings& settings, const ReadSetting& plain, runtime::Streamer& streamer,
         const SourceBytes& source)
      : settings_(settings), plain_(plain), streamer_(streamer), source_(source) {}

  /// Keeps the weights of every block in plain memory, and notes what is in which tier.
  Result<void> prepare(RunResult& result) {
    for (std::size_t block = 0; block < streamer_.block_count(); ++block) {
      TP_ASSIGN_OR_RETURN(const runtime::BlockLease lease, streamer_.acquire(block));
      std::uint64_t weight_bytes = 0;
      for (const runtime::TensorView& tensor : lease.tensors()) {
        weight_bytes += tensor.size_bytes;
      }
      const format::PackedExtent& extent = streamer_.block(block);
      const bool is_on_disk = extent.tier == format::Tier::kDisk;
      result.weight_bytes += weight_bytes;
      // Two blocks ahead of the one in use, as the plan of this pack says nothing.
      slot_bytes_ = std::max(slot_bytes_, is_on_disk ? 3 * extent.stored_bytes : 0);
      result.disk_weight_bytes += is_on_disk ? weight_bytes : 0;
      result.ram_weight_bytes += is_on_disk ? 0 : weight_bytes;
      result.ram_stored_bytes += is_on_disk ? 0 : extent.stored_bytes;
      if (settings_.work > 0) {
        TP_RETURN_IF_ERROR(keep(lease, weight_bytes));
      }
    }
    if (!resident_.empty()) {
      TP_ASSIGN_OR_RETURN(copied_, AlignedBuffer::create(resident_.front().size_bytes()));
      std::memset(copied_.data(), 1, copied_.size_bytes());
    }
    return {};
  }

  Result<void> read(RunTimes& times) {
    if (source_.ranges().empty()) {
      return {};
    }
    TP_ASSIGN_OR_RETURN(const PlainRead taken, read_plainly(source_.ranges(), plain_));
    times.read_s.push_back(taken.seconds);
    TP_ASSIGN_OR_RETURN(const PlainRead spread,
                        read_plainly(source_.ranges(), plain_, slot_bytes_));
    times.spread_read_s.push_back(spread.seconds);
    return {};
  }

  void compute(RunTimes& times) {
    if (resident_.empty()) {
      return;
    }
    const double cpu_began_s = cpu_seconds();
    const auto began = Clock::now();
    resident_sum_ = 0;
    for (const AlignedBuffer& block : resident_) {
      for (int time = 0; time < settings_.work; ++time) {
        resident_sum_ += read_weights(block.span());
      }
    }
    times.resident_s.push_back(seconds_since(began));
    times.resident_cpu_s.push_back(cpu_seconds() - cpu_began_s);
    const auto copy_began = Clock::now();
    for (const AlignedBuffer& block : resident_) {
      std::memcpy(copied_.data(), block.data(), block.size_bytes());
    }
    times.copy_s.push_back(seconds_since(copy_began));
  }

  Result<void> pass(RunTimes& times, PassUse& use) {
    TP_RETURN_IF_ERROR(run_pass());
    times.pass_s.reserve(times.pass_s.size() + 1);
    const std::uint64_t read_before = io_counter("read_bytes:");
    const std::uint64_t mapped_before = mapped_bytes();
    const std::int64_t heap_before = heap_bytes();
    const std::uint64_t allocated_before = allocation_count;
    const double cpu_began_s = cpu_seconds();
    const auto began = Clock::now();
    TP_RETURN_IF_ERROR(run_pass());
    const double taken_s = seconds_since(began);
    const double cpu_s = cpu_seconds() - cpu_began_s;
    use.allocation_count += allocation_count - allocated_before;
    use.heap_bytes += heap_bytes() - heap_before;
    use.mapped_bytes += static_cast<std::int64_t>(mapped_bytes() - mapped_before);
    use.read_bytes += io_counter("read_bytes:") - read_before;
    times.pass_s.push_back(taken_s);
    times.pass_cpu_s.push_back(cpu_s);
    runtime::wait_until_idle(streamer_);
    if (pass_sum_ != resident_sum_) {
      return std::unexpected(Error(ErrorCode::kMismatch, "a pass gave other weights"));
    }
    return {};
  }

 private:
  Result<void> keep(const runtime::BlockLease& lease, std::uint64_t weight_bytes) {
    TP_ASSIGN_OR_RETURN(AlignedBuffer memory, AlignedBuffer::create(weight_bytes));
    std::byte* at = memory.data();
    for (const runtime::TensorView& tensor : lease.tensors()) {
      std::memcpy(at, tensor.data, tensor.size_bytes);
      at += tensor.size_bytes;
    }
    resident_.push_back(std::move(memory));
    return {};
  }

  Result<void> run_pass() {
    pass_sum_ = 0;
    for (std::size_t block = 0; block < streamer_.block_count(); ++block) {
      TP_ASSIGN_OR_RETURN(const runtime::BlockLease lease, streamer_.acquire(block));
      for (int time = 0; time < settings_.work; ++time) {
        for (const runtime::TensorView& tensor : lease.tensors()) {
          pass_sum_ += read_weights({tensor.data, tensor.size_bytes});
        }
      }
    }
    return {};
  }

  const RunSettings& settings_;
  const ReadSetting plain_;
  runtime::Streamer& streamer_;
  const SourceBytes& source_;
  std::vector<AlignedBuffer> resident_;  ///< One a block; empty where nothing is computed.
  AlignedBuffer copied_;
  std::uint64_t slot_bytes_ = 0;
  std::uint64_t resident_sum_ = 0;
  std::uint64_t pass_sum_ = 0;
};

}  // namespace

double median_of(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Result<ReadSetting> find_plain_setting(const SyntheticPack& model) {
  TP_ASSIGN_OR_RETURN(const SourceBytes source, SourceBytes::open(model));
  if (source.ranges().empty()) {
    return kPlainSettings.front();
  }
  std::array<std::vector<double>, kPlainSettings.size()> seconds;
  for (int round = 0; round < kCalibrationRounds; ++round) {
    for (std::size_t at = 0; at < kPlainSettings.size(); ++at) {
      TP_ASSIGN_OR_RETURN(const PlainRead taken,
                          read_plainly(source.ranges(), kPlainSettings.at(at)));
      seconds.at(at).push_back(taken.seconds);
    }
  }
  std::size_t best = 0;
  for (std::size_t at = 0; at < kPlainSettings.size(); ++at) {
    const double rate = static_cast<double>(source.size_bytes()) / median_of(seconds.at(at));
    fmt::print("plain read {} x {:2}: {}/s\n", format_bytes(kPlainSettings.at(at).request_bytes),
               kPlainSettings.at(at).depth, format_bytes(static_cast<std::uint64_t>(rate)));
    best = median_of(seconds.at(at)) < median_of(seconds.at(best)) ? at : best;
  }
  return kPlainSettings.at(best);
}

Result<RunResult> run_rounds(const RunSettings& settings, const ReadSetting& plain) {
  RunResult result;
  TP_ASSIGN_OR_RETURN(const SourceBytes source, SourceBytes::open(settings.model));
  TP_ASSIGN_OR_RETURN(runtime::Streamer streamer,
                      runtime::Streamer::open(settings.model.pack, settings.stream));
  Rounds rounds(settings, plain, streamer, source);
  TP_RETURN_IF_ERROR(rounds.prepare(result));
  result.description = fmt::format("{}; {} of weight memory", streamer.stats().io_description,
                                   format_bytes(streamer.stats().weight_memory_bytes));
  for (int round = 0; round < settings.round_count; ++round) {
    if (round % 2 == 0) {
      TP_RETURN_IF_ERROR(rounds.read(result.times));
    }
    rounds.compute(result.times);
    TP_RETURN_IF_ERROR(rounds.pass(result.times, result.use));
    if (round % 2 == 1) {
      TP_RETURN_IF_ERROR(rounds.read(result.times));
    }
  }
  return result;
}

}  // namespace trash_panda::bench
