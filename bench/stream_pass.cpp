// A pass of a pack that lies wholly on disk, beside a plain direct read of the same bytes.
//
//   stream_pass FOLDER [--gb 2] [--blocks 16] [--pairs 9] [--io auto] [--depth 4] [--request-kib
//   2048]
//
// Makes the pack in a new folder inside FOLDER and removes it at the end. The plain read comes in
// the best of four settings, found first; then passes and plain reads take turns, so that what else
// the machine does meets both. A pass is timed from the end of one to the end of the next: what
// was read ahead before it is then made up for by what it leaves read ahead. Prints the ratio of
// medians (acceptance: 1.05) and the CPU time of all threads per GB (acceptance: 0.1 s).

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/units.h"
#include "trash_panda/runtime/streamer.h"

#include "plain_read.h"
#include "synthetic_pack.h"

namespace trash_panda::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<PlainSetting, 4> kPlainSettings = {
    {{1 * kMiB, 4}, {4 * kMiB, 4}, {4 * kMiB, 16}, {1 * kMiB, 16}}};
constexpr int kCalibrationRounds = 3;

struct Settings {
  std::filesystem::path folder;
  SyntheticModel model = {.size_bytes = 2'000'000'000, .block_count = 16};
  int pair_count = 9;
  runtime::StreamOptions stream;
};

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double cpu_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The shards of a pack and where its blocks lie in them.
class PackBytes {
 public:
  static Result<PackBytes> open(const std::filesystem::path& pack) {
    PackBytes bytes;
    TP_ASSIGN_OR_RETURN(const format::Manifest manifest, format::read_manifest(pack));
    for (const format::PackedShard& shard : manifest.shards) {
      TP_ASSIGN_OR_RETURN(File file, File::open(pack / shard.name, ReadMode::kDirect));
      bytes.files_.push_back(std::move(file));
    }
    for (const format::PackedExtent& extent : manifest.extents) {
      if (extent.tier == format::Tier::kDisk) {
        bytes.ranges_.push_back({.file = &bytes.files_[extent.shard_index],
                                 .offset_bytes = extent.offset_bytes,
                                 .size_bytes = extent.stored_bytes});
        bytes.size_bytes_ += extent.stored_bytes;
      }
    }
    return bytes;
  }

  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const std::vector<PlainRange>& ranges() const { return ranges_; }

 private:
  std::vector<File> files_;
  std::vector<PlainRange> ranges_;
  std::uint64_t size_bytes_ = 0;
};

Result<PlainSetting> best_setting(const PackBytes& bytes) {
  std::array<std::vector<double>, kPlainSettings.size()> seconds;
  for (int round = 0; round < kCalibrationRounds; ++round) {
    for (std::size_t at = 0; at < kPlainSettings.size(); ++at) {
      TP_ASSIGN_OR_RETURN(const double taken, read_plainly(bytes.ranges(), kPlainSettings.at(at)));
      seconds.at(at).push_back(taken);
    }
  }
  std::size_t best = 0;
  for (std::size_t at = 0; at < kPlainSettings.size(); ++at) {
    const double rate = static_cast<double>(bytes.size_bytes()) / median_of(seconds.at(at));
    fmt::print("plain read {} x {:2}: {}/s\n", format_bytes(kPlainSettings.at(at).request_bytes),
               kPlainSettings.at(at).depth, format_bytes(static_cast<std::uint64_t>(rate)));
    best = median_of(seconds.at(at)) < median_of(seconds.at(best)) ? at : best;
  }
  return kPlainSettings.at(best);
}

Result<void> run_pass(runtime::Streamer& streamer) {
  for (std::size_t block = 0; block < streamer.block_count(); ++block) {
    TP_ASSIGN_OR_RETURN(const runtime::BlockLease lease, streamer.acquire(block));
    static_cast<void>(lease);
  }
  return {};
}

/// Waits until nothing is read ahead any more, so that the next plain read has the drive alone.
void wait_until_idle(const runtime::Streamer& streamer) {
  std::uint64_t before = 0;
  for (std::uint64_t now = streamer.stats().read_bytes_disk; now != before;
       now = streamer.stats().read_bytes_disk) {
    before = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

struct Measured {
  std::vector<double> plain_s;
  std::vector<double> pass_s;
  std::vector<double> pass_cpu_s;
};

Result<void> measure_pass(runtime::Streamer& streamer, Measured& measured) {
  TP_RETURN_IF_ERROR(run_pass(streamer));
  const auto began = Clock::now();
  const double cpu_began = cpu_seconds();
  TP_RETURN_IF_ERROR(run_pass(streamer));
  measured.pass_cpu_s.push_back(cpu_seconds() - cpu_began);
  const std::chrono::duration<double> elapsed = Clock::now() - began;
  measured.pass_s.push_back(elapsed.count());
  wait_until_idle(streamer);
  return {};
}

Result<void> measure_pairs(const Settings& settings, const PackBytes& bytes,
                           const std::filesystem::path& pack) {
  TP_ASSIGN_OR_RETURN(const PlainSetting plain, best_setting(bytes));
  TP_ASSIGN_OR_RETURN(runtime::Streamer streamer, runtime::Streamer::open(pack, settings.stream));
  fmt::print("streaming by {}; {} of slots\n", streamer.stats().io_description,
             format_bytes(streamer.stats().weight_memory_bytes));
  Measured measured;
  for (int pair = 0; pair < settings.pair_count; ++pair) {
    const auto read_once = [&]() -> Result<void> {
      TP_ASSIGN_OR_RETURN(const double taken, read_plainly(bytes.ranges(), plain));
      measured.plain_s.push_back(taken);
      return {};
    };
    if (pair % 2 == 0) {
      TP_RETURN_IF_ERROR(read_once());
    }
    TP_RETURN_IF_ERROR(measure_pass(streamer, measured));
    if (pair % 2 == 1) {
      TP_RETURN_IF_ERROR(read_once());
    }
    fmt::print("pair {}: plain {:.3f} s, pass {:.3f} s, CPU {:.3f} s\n", pair + 1,
               measured.plain_s.back(), measured.pass_s.back(), measured.pass_cpu_s.back());
  }
  const double size_gb = static_cast<double>(bytes.size_bytes()) * 1e-9;
  std::vector<double> ratios;
  for (std::size_t at = 0; at < measured.pass_s.size(); ++at) {
    ratios.push_back(measured.pass_s[at] / measured.plain_s[at]);
  }
  fmt::print(
      "{:.2f} GB, {} pairs: plain {:.3f} s ({:.2f} GB/s), pass {:.3f} s ({:.2f} GB/s)\n"
      "ratio of medians {:.3f}, median of ratios {:.3f}; CPU {:.4f} s/GB\n",
      size_gb, ratios.size(), median_of(measured.plain_s), size_gb / median_of(measured.plain_s),
      median_of(measured.pass_s), size_gb / median_of(measured.pass_s),
      median_of(measured.pass_s) / median_of(measured.plain_s), median_of(ratios),
      median_of(measured.pass_cpu_s) / size_gb);
  return {};
}

Result<Settings> parse(int argc, char** argv) {
  const Error usage = Error(ErrorCode::kUsage,
                            "usage: stream_pass FOLDER [--gb N] [--blocks N] "
                            "[--pairs N] [--io auto|io_uring|pread] "
                            "[--depth N] [--request-kib N]");
  if (argc < 2 || argc % 2 != 0) {
    return std::unexpected(usage);
  }
  Settings settings;
  settings.folder = argv[1];
  for (int at = 2; at < argc; at += 2) {
    const std::string_view name = argv[at];
    const std::string value = argv[at + 1];
    const std::uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--io") {
      TP_ASSIGN_OR_RETURN(settings.stream.io, runtime::parse_io_backend(value));
    } else if (number == 0) {
      return std::unexpected(usage);
    } else if (name == "--gb") {
      settings.model.size_bytes = number * 1'000'000'000;
    } else if (name == "--blocks") {
      settings.model.block_count = number;
    } else if (name == "--pairs") {
      settings.pair_count = static_cast<int>(number);
    } else if (name == "--depth") {
      settings.stream.read_depth = static_cast<std::uint32_t>(number);
    } else if (name == "--request-kib") {
      settings.stream.read_request_bytes = number * kKiB;
    } else {
      return std::unexpected(usage);
    }
  }
  return settings;
}

Result<void> run(Settings settings, const std::filesystem::path& folder) {
  TP_ASSIGN_OR_RETURN(const std::filesystem::path pack,
                      write_synthetic_pack(folder, settings.model));
  settings.stream.log = [](LogLevel, std::string_view line) { fmt::print("{}\n", line); };
  TP_ASSIGN_OR_RETURN(const PackBytes bytes, PackBytes::open(pack));
  return measure_pairs(settings, bytes, pack);
}

}  // namespace

}  // namespace trash_panda::bench

int main(int argc, char** argv) {
  using trash_panda::Result;
  const auto settings = trash_panda::bench::parse(argc, argv);
  if (!settings) {
    fmt::print(stderr, "{}\n", settings.error().to_string());
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  std::string name = (settings->folder / "stream_pass-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    fmt::print(stderr, "can't make a folder in {}\n", settings->folder.string());
    return 7;
  }
  const Result<void> done = trash_panda::bench::run(*settings, name);
  std::filesystem::remove_all(name);
  if (!done) {
    fmt::print(stderr, "{}\n", done.error().to_string());
    return 1;
  }
  return 0;
}
