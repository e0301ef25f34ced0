// Passes of a streamed model, beside what no pass can beat, in the same run:
//
//   stream_pass FOLDER [--gb 2] [--blocks 16] [--rounds 9] [--form raw|exponent]
//               [--ram none|half|all] [--work 0] [--io auto] [--depth N] [--request-kib N]
//               [--log FILE]
//
// Makes checkpoint and pack in a new folder inside FOLDER and removes them at the end. In each
// round these take turns, so that what else the machine does meets all: a plain direct read of the
// uncoded weights of the disk blocks, in the best of four settings, found first, into a few buffers
// that stay in the caches, and once more into as much memory as the pass has slots; the computation
// on weights in plain memory, which reads all of them `--work` times on one thread; a memcpy() of
// them; a pass. A pass is timed from the end of one to the end of the next: what was read ahead
// before it is then made up for by what it leaves read ahead.
//
// Acceptance, of medians. All on disk: pass : plain read <= 1.05 raw, <= 0.76 in the exponent code;
// CPU time beyond the computation's own <= 0.1 s/GB raw. Half in RAM: pass : the longer of read and
// computation <= 1.1. All in RAM: pass : computation <= 1.02 raw; in the exponent code (pass -
// computation) : memcpy <= 1.2 and raw : coded size >= 1.45; no byte read, nothing allocated.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "trash_panda/base/units.h"

#include "stream_runs.h"

namespace trash_panda::bench {

namespace {

struct Settings {
  std::filesystem::path folder;
  std::uint64_t size_bytes = 2'000'000'000;
  std::size_t block_count = 16;
  std::string form = "raw";
  std::string ram = "none";
  RunSettings run;
};

Error usage_error() {
  return {ErrorCode::kUsage,
          "usage: stream_pass FOLDER [--gb N] [--blocks N] [--rounds N] [--form raw|exponent] "
          "[--ram none|half|all] [--work N] [--io auto|io_uring|pread] [--depth N] "
          "[--request-kib N] [--log FILE]"};
}

Result<void> set_number(std::string_view name, std::uint64_t number, Settings& settings) {
  if (number == 0 && name != "--work") {
    return std::unexpected(usage_error());
  }
  if (name == "--work") {
    settings.run.work = static_cast<int>(number);
  } else if (name == "--gb") {
    settings.size_bytes = number * 1'000'000'000;
  } else if (name == "--blocks") {
    settings.block_count = number;
  } else if (name == "--rounds") {
    settings.run.round_count = static_cast<int>(number);
  } else if (name == "--depth") {
    settings.run.stream.read_depth = static_cast<std::uint32_t>(number);
  } else if (name == "--request-kib") {
    settings.run.stream.read_request_bytes = number * kKiB;
  } else {
    return std::unexpected(usage_error());
  }
  return {};
}

Result<Settings> parse(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) {
    return std::unexpected(usage_error());
  }
  Settings settings;
  settings.folder = argv[1];
  for (int at = 2; at < argc; at += 2) {
    const std::string_view name = argv[at];
    const std::string value = argv[at + 1];
    if (name == "--io") {
      TP_ASSIGN_OR_RETURN(settings.run.stream.io, runtime::parse_io_backend(value));
    } else if (name == "--form" && (value == "raw" || value == "exponent")) {
      settings.form = value;
    } else if (name == "--ram" && (value == "none" || value == "half" || value == "all")) {
      settings.ram = value;
    } else if (name == "--log") {
      settings.run.stream.run_log = value;
    } else {
      TP_RETURN_IF_ERROR(set_number(name, std::strtoull(value.c_str(), nullptr, 10), settings));
    }
  }
  return settings;
}

SyntheticModel make_model(const Settings& settings) {
  SyntheticModel model = {
      .size_bytes = settings.size_bytes, .tiers = {}, .is_coded = settings.form == "exponent"};
  for (std::size_t block = 0; block < settings.block_count; ++block) {
    const bool is_in_ram = settings.ram == "all" || (settings.ram == "half" && block % 2 == 1);
    model.tiers.push_back(is_in_ram ? format::Tier::kRam : format::Tier::kDisk);
  }
  return model;
}

void print_seconds(std::string_view what, const std::vector<double>& seconds, std::uint64_t bytes) {
  if (!seconds.empty()) {
    fmt::print("{:<22} {:.3f} s ({:.3f} to {:.3f}), {:.2f} GB/s\n", what, median_of(seconds),
               std::ranges::min(seconds), std::ranges::max(seconds),
               static_cast<double>(bytes) * 1e-9 / median_of(seconds));
  }
}

void print_result(const Settings& settings, const RunResult& result) {
  const RunTimes& times = result.times;
  const double read_s = median_of(times.read_s);
  const double compute_s = median_of(times.resident_s);
  const double pass_s = median_of(times.pass_s);
  fmt::print("{}\n", result.description);
  print_seconds("plain read, uncoded", times.read_s, result.disk_weight_bytes);
  print_seconds("the same, into slots", times.spread_read_s, result.disk_weight_bytes);
  print_seconds("computation, resident", times.resident_s, result.weight_bytes);
  print_seconds("memcpy", times.copy_s, result.weight_bytes);
  print_seconds("pass", times.pass_s, result.weight_bytes);
  if (settings.ram == "all") {
    fmt::print("pass : computation {:.3f}; (pass - computation) : memcpy {:.3f}\n",
               pass_s / compute_s, (pass_s - compute_s) / median_of(times.copy_s));
  } else {
    fmt::print("pass : plain read {:.3f}; pass : longer of read and computation {:.3f}\n",
               pass_s / read_s, pass_s / std::max(read_s, compute_s));
    fmt::print("pass : plain read into slots {:.3f}\n", pass_s / median_of(times.spread_read_s));
  }
  fmt::print("CPU beyond the computation {:.4f} s/GB\n",
             (median_of(times.pass_cpu_s) - median_of(times.resident_cpu_s)) /
                 (static_cast<double>(result.weight_bytes) * 1e-9));
  if (result.ram_stored_bytes > 0) {
    fmt::print("RAM tier {} for {} of weights: {:.3f} x\n", format_bytes(result.ram_stored_bytes),
               format_bytes(result.ram_weight_bytes),
               static_cast<double>(result.ram_weight_bytes) /
                   static_cast<double>(result.ram_stored_bytes));
  }
  fmt::print("{} passes: {} bytes read, {} allocations, heap {:+} bytes, mapped {:+} bytes\n",
             times.pass_s.size(), result.use.read_bytes, result.use.allocation_count,
             result.use.heap_bytes, result.use.mapped_bytes);
}

Result<void> run(Settings settings, const std::filesystem::path& folder) {
  TP_ASSIGN_OR_RETURN(settings.run.model, write_synthetic_pack(folder, make_model(settings)));
  settings.run.stream.log = [](LogLevel, std::string_view line) { fmt::print("{}\n", line); };
  TP_ASSIGN_OR_RETURN(const runtime::ReadSetting plain, find_plain_setting(settings.run.model));
  // As a plan would have it, for which the drive is measured too.
  runtime::StreamOptions& stream = settings.run.stream;
  stream.read_depth = stream.read_depth.value_or(plain.depth);
  stream.read_request_bytes = stream.read_request_bytes.value_or(plain.request_bytes);
  TP_ASSIGN_OR_RETURN(const RunResult result, run_rounds(settings.run, plain));
  print_result(settings, result);
  return {};
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
