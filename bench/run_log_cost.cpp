// What a run log costs: passes of one model by two streamers in turns, one of which writes a log.
//
//   run_log_cost FOLDER [--mb 512] [--blocks 64] [--rounds 21] [--tier disk|ram] [--io auto]
//
// Makes checkpoint and pack in a new folder inside FOLDER and removes them at the end. Each block
// is summed up once on one thread, which is about the least that a model does with its weights.
// Time and CPU time (of all threads, that which writes the log included) are of whole passes, after
// what is read ahead has come in.
//
// Acceptance, of medians over the rounds: pass with a log : pass without <= 1.01, for blocks of 8
// MB and more, as those of models are. More blocks of the same size in all show what a span costs.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/runtime/streamer.h"

#include "cpu_time.h"
#include "synthetic_pack.h"

namespace trash_panda::bench {

namespace {

struct CostSettings {
  std::filesystem::path folder;
  std::uint64_t size_bytes = 512'000'000;
  std::size_t block_count = 64;
  int round_count = 21;
  format::Tier tier = format::Tier::kDisk;
  runtime::IoBackend io = runtime::IoBackend::kAuto;
};

Result<CostSettings> parse_arguments(int argc, char** argv) {
  const Error usage(ErrorCode::kUsage,
                    "usage: run_log_cost FOLDER [--mb N] [--blocks N] [--rounds N] "
                    "[--tier disk|ram] [--io auto|io_uring|pread]");
  if (argc < 2 || argc % 2 != 0) {
    return std::unexpected(usage);
  }
  CostSettings settings;
  settings.folder = argv[1];
  for (int at = 2; at < argc; at += 2) {
    const std::string_view name = argv[at];
    const std::string value = argv[at + 1];
    const std::uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "--io") {
      TP_ASSIGN_OR_RETURN(settings.io, runtime::parse_io_backend(value));
    } else if (name == "--tier" && (value == "disk" || value == "ram")) {
      settings.tier = value == "ram" ? format::Tier::kRam : format::Tier::kDisk;
    } else if (name == "--mb" && number > 0) {
      settings.size_bytes = number * 1'000'000;
    } else if (name == "--blocks" && number > 0) {
      settings.block_count = number;
    } else if (name == "--rounds" && number > 0) {
      settings.round_count = static_cast<int>(number);
    } else {
      return std::unexpected(usage);
    }
  }
  return settings;
}

double process_cpu_s() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// One of the two.
class Runner {
 public:
  explicit Runner(runtime::Streamer streamer) : streamer_(std::move(streamer)) {}

  std::vector<double> pass_s;
  std::vector<double> cpu_s;

  Result<void> pass() {
    const double cpu_began_s = process_cpu_s();
    const auto began = std::chrono::steady_clock::now();
    for (std::size_t block = 0; block < streamer_.block_count(); ++block) {
      TP_ASSIGN_OR_RETURN(const runtime::BlockLease lease, streamer_.acquire(block));
      for (const runtime::TensorView& tensor : lease.tensors()) {
        for (std::uint64_t at = 0; at + 8 <= tensor.size_bytes; at += 8) {
          std::uint64_t word = 0;
          std::memcpy(&word, tensor.data + at, sizeof word);
          sum_ += word;
        }
      }
    }
    pass_s.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    // What is read ahead for the next pass, and the lines of this one, are of this pass.
    wait_until_idle();
    cpu_s.push_back(process_cpu_s() - cpu_began_s);
    return {};
  }
  [[nodiscard]] std::uint64_t sum() const { return sum_; }

 private:
  void wait_until_idle() const {
    std::uint64_t before = UINT64_MAX;
    for (std::uint64_t now = streamer_.stats().read_bytes_disk; now != before;
         now = streamer_.stats().read_bytes_disk) {
      before = now;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  runtime::Streamer streamer_;
  std::uint64_t sum_ = 0;
};

Result<void> run_in_turns(const CostSettings& settings, const std::filesystem::path& folder) {
  TP_ASSIGN_OR_RETURN(
      const SyntheticPack model,
      write_synthetic_pack(folder, {.size_bytes = settings.size_bytes,
                                    .tiers = std::vector(settings.block_count, settings.tier)}));
  runtime::StreamOptions options;
  options.io = settings.io;
  TP_ASSIGN_OR_RETURN(runtime::Streamer silent, runtime::Streamer::open(model.pack, options));
  options.run_log = folder / "run.jsonl";
  TP_ASSIGN_OR_RETURN(runtime::Streamer logging, runtime::Streamer::open(model.pack, options));
  Runner without(std::move(silent));
  Runner with(std::move(logging));
  for (int round = 0; round <= settings.round_count; ++round) {
    Runner& first = round % 2 == 0 ? without : with;
    Runner& second = round % 2 == 0 ? with : without;
    TP_RETURN_IF_ERROR(first.pass());
    TP_RETURN_IF_ERROR(second.pass());
    if (round == 0) {  // Fills the RAM tier, and maps what is used again.
      for (Runner* runner : {&without, &with}) {
        runner->pass_s.clear();
        runner->cpu_s.clear();
      }
    }
  }
  if (without.sum() != with.sum()) {
    return std::unexpected(Error(ErrorCode::kMismatch, "a pass gave other weights"));
  }
  // Of each round by itself, as the two meet the same machine there.
  std::vector<double> pass_ratios;
  std::vector<double> added_cpu_s;
  for (std::size_t round = 0; round < with.pass_s.size(); ++round) {
    pass_ratios.push_back(with.pass_s[round] / without.pass_s[round]);
    added_cpu_s.push_back(with.cpu_s[round] - without.cpu_s[round]);
  }
  const double added_s = upper_median(added_cpu_s);
  fmt::print("{} blocks of {:.1f} MB, {} rounds\n", settings.block_count,
             static_cast<double>(model.block_bytes) * 1e-6, settings.round_count);
  fmt::print("pass with a log : without {:.4f}\n", upper_median(pass_ratios));
  fmt::print("CPU of the log {:.2f} us for each block, {:.3f} % of a pass's time\n",
             1e6 * added_s / static_cast<double>(settings.block_count),
             100 * added_s / upper_median(without.pass_s));
  return {};
}

}  // namespace

}  // namespace trash_panda::bench

int main(int argc, char** argv) {
  using trash_panda::Result;
  const auto settings = trash_panda::bench::parse_arguments(argc, argv);
  if (!settings) {
    fmt::print(stderr, "{}\n", settings.error().to_string());
    return 2;
  }
  std::string name = (settings->folder / "run_log_cost-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    fmt::print(stderr, "can't make a folder in {}\n", settings->folder.string());
    return 7;
  }
  const Result<void> done = trash_panda::bench::run_in_turns(*settings, name);
  std::filesystem::remove_all(name);
  if (!done) {
    fmt::print(stderr, "{}\n", done.error().to_string());
    return 1;
  }
  return 0;
}
