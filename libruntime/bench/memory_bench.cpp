#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/units.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/runtime/bench.h"

#include "bench/turns.h"
#include "probe/memory_rates.h"
#include "probe/memory_work.h"

namespace trash_panda::runtime {

namespace {

/// Of a tensor that is expanded or decoded: more than caches hold.
constexpr std::uint64_t kBenchWeightBytes = 128 * kMiB;

std::uint64_t bench_memory_bytes(const plan::Hardware& hardware) {
  return measuring_bytes(hardware, effort_plan(ProbeEffort::kQuick));
}

Result<void> decode_line(std::string_view name, format::TensorCoding coding,
                         std::uint64_t memory_bytes, const BenchOptions& options,
                         BenchReport& report) {
  // Half for the codes and what they decode to, half for the copy.
  TP_ASSIGN_OR_RETURN(const DecodeWork work,
                      DecodeWork::create(coding, 1, kBenchWeightBytes, memory_bytes / 2));
  TP_ASSIGN_OR_RETURN(const CopyWork copies,
                      CopyWork::create(std::min(2 * kBenchWeightBytes, memory_bytes / 2)));
  return compare({.what = "decode",
                  .measured = {.name = std::string(name), .bytes_per_s = {}},
                  .limit = BenchSeries{.name = "memcpy of the output", .bytes_per_s = {}}},
                 work_turn(1, work.decode()), work_turn(1, copies.copy(1)), options, report);
}

}  // namespace

Result<void> bench_ram(const plan::Hardware& hardware, const BenchOptions& options,
                       BenchReport& report) {
  announce(options, "RAM");
  TP_ASSIGN_OR_RETURN(const CopyWork work, CopyWork::create(bench_memory_bytes(hardware)));
  const std::size_t thread_count = memory_thread_count(hardware);
  BenchSeries one = {.name = "copy, 1 thread", .bytes_per_s = {}};
  if (thread_count == 1) {
    const std::array turns = {
        Turn{.measure = work_turn(1, work.copy(1)), .bytes_per_s = &one.bytes_per_s}};
    TP_RETURN_IF_ERROR(take_turns(turns, WarmUp::kRound, options));
    report.lines.push_back({.what = "ram", .measured = std::move(one)});
    return {};
  }
  const BenchSeries all = {.name = fmt::format("copy, {} threads", thread_count),
                           .bytes_per_s = {}};
  TP_RETURN_IF_ERROR(compare({.what = "ram", .measured = std::move(one), .limit = all},
                             work_turn(1, work.copy(1)),
                             work_turn(thread_count, work.copy(thread_count)), options, report));
  report.lines.push_back({.what = "ram", .measured = *report.lines.back().limit});
  return {};
}

Result<void> bench_expand(const plan::Hardware& hardware, const BenchOptions& options,
                          BenchReport& report) {
  announce(options, "expansion");
  TP_ASSIGN_OR_RETURN(const ExpandWork work,
                      ExpandWork::create(1, kBenchWeightBytes, bench_memory_bytes(hardware)));
  return compare({.what = "expand",
                  .measured = {.name = "fp8 to bf16, 1 thread", .bytes_per_s = {}},
                  .limit = BenchSeries{.name = "copy, 1 byte read, 2 written", .bytes_per_s = {}}},
                 work_turn(1, work.expand()), work_turn(1, work.copy()), options, report);
}

Result<void> bench_decode(const plan::Hardware& hardware, const BenchOptions& options,
                          BenchReport& report) {
  announce(options, "decoding");
  const std::uint64_t memory_bytes = bench_memory_bytes(hardware);
  TP_RETURN_IF_ERROR(decode_line("exponent code to bf16, 1 thread", format::TensorCoding::kExponent,
                                 memory_bytes, options, report));
  return decode_line("zstd code to fp8, 1 thread", format::TensorCoding::kZstd, memory_bytes,
                     options, report);
}

}  // namespace trash_panda::runtime
