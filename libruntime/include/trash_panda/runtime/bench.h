#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/log.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/runtime/io_engine.h"

/// What a machine does beside what limits it, measured in turns in the same run: whatever else the
/// machine does meets both.
namespace trash_panda::runtime {

struct BenchOptions {
  std::uint32_t round_count = 5;  ///< At least 1. In each, all that is compared takes a turn.
  IoBackend io = IoBackend::kAuto;
  /// Called with what is measured next, such as "disk". May be empty.
  std::function<void(std::string_view step)> on_step = {};
  StopFlag stop = nullptr;
  Logger log = silent_logger();
};

/// One thing that took turns.
struct BenchSeries {
  std::string name;                 ///< "copy, 1 thread".
  std::vector<double> bytes_per_s;  ///< By round.
};

/// Something measured and its limit.
struct BenchLine {
  std::string what;  ///< "disk", "h2d", "ram", "expand", "decode" or "stream".
  BenchSeries measured;
  /// Of the same rounds; nothing: it is itself the limit of another line.
  std::optional<BenchSeries> limit = {};
};

/// What can't be measured here, which is no failure.
struct BenchLeftOut {
  std::string what;  ///< As BenchLine has it.
  std::string why;
};

struct BenchReport {
  std::vector<BenchLine> lines;
  std::vector<BenchLeftOut> left_out;
};

/// What streaming a pack took, beside its line. Bytes are of one pass.
struct StreamBench {
  std::size_t block_count = 0;
  std::uint64_t weight_bytes = 0;      ///< Of all blocks, as they are stored, but decoded.
  std::uint64_t disk_read_bytes = 0;   ///< That the streamer read of the disk tier.
  std::uint64_t plain_read_bytes = 0;  ///< That the plain read read; equals that.
  std::uint64_t ram_read_bytes = 0;    ///< Of the RAM tier, by the first pass only.
  double open_s = 0;                   ///< Base included.
  double first_pass_s = 0;
  double first_wait_s = 0;           ///< Of it, waiting for reads.
  std::vector<double> pass_s = {};   ///< Of the other passes, by round.
  std::vector<double> plain_s = {};  ///< Plain reads of the bytes of the disk tier, by round.
};

// All of them add to `report`, whatever it holds already, and fail alike:
// kInterrupted  BenchOptions::stop was set; nothing is left behind.
// kFailed       The system refuses memory or threads.

/// Direct reads of the drive of a path: those of the engine that streams, in the setting that a
/// plan would stream in, beside the fastest of: threads that do nothing but read, in the best
/// setting for them and in that one, and the engine in its fastest setting.
///
/// @param path      A checkpoint or a folder, as hwreport's: a checkpoint in it is read, else a
///                  test file without a name, which always disappears.
/// @param hardware  As probe_hardware() leaves it; so for the others.
Result<void> bench_disk(const std::filesystem::path& path, const plan::Hardware& hardware,
                        const BenchOptions& options, BenchReport& report);

/// Copies to each GPU, from pageable memory beside pinned memory.
Result<void> bench_h2d(const plan::Hardware& hardware, const BenchOptions& options,
                       BenchReport& report);

/// Copies in RAM, of one thread beside those of all.
Result<void> bench_ram(const plan::Hardware& hardware, const BenchOptions& options,
                       BenchReport& report);

/// Expansion of fp8 with a scale for each tensor to bf16, one thread, beside a copy that reads and
/// writes as many bytes. Rates are of fp8.
Result<void> bench_expand(const plan::Hardware& hardware, const BenchOptions& options,
                          BenchReport& report);

/// Decoding of the exponent code to bf16, and of the zstd code to fp8, one thread, beside memcpy()
/// of what is decoded. Rates are of decoded bytes.
Result<void> bench_decode(const plan::Hardware& hardware, const BenchOptions& options,
                          BenchReport& report);

/// Passes over a pack's blocks with nothing computed, beside plain reads of what a pass reads from
/// disk, in their fastest setting. Rates are of weights. Of a pack that is all in RAM, beside
/// memcpy() of as many bytes where weights are decoded; else there is no line, as nothing is done.
///
/// A pass is timed from the end of one to the end of the next: what was read ahead before it is
/// made up for by what it leaves read ahead.
///
/// @return More of it.
/// @retval kMissing, kCorrupt, kMismatch, kDoesNotFit, kDevice  As Streamer::open().
Result<StreamBench> bench_stream(const std::filesystem::path& pack, const plan::Hardware& hardware,
                                 const BenchOptions& options, BenchReport& report);

}  // namespace trash_panda::runtime
