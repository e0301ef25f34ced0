#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/runtime/bench.h"

#include "bench/turns.h"
#include "cuda/driver.h"
#include "cuda/link_session.h"

namespace trash_panda::runtime {

namespace {

Result<void> h2d_lines(const cuda::Driver& driver, const plan::Hardware& hardware,
                       std::size_t index, const BenchOptions& options, BenchReport& report) {
  // Of the GPU two thirds as much as of the host: most of what it has free stays so.
  const plan::GpuInfo& gpu = hardware.gpus[index];
  const std::uint64_t memory_bytes =
      std::min(measuring_bytes(hardware, effort_plan(ProbeEffort::kQuick)), gpu.free_bytes / 2);
  cuda::LinkSession session(driver);
  TP_RETURN_IF_ERROR(session.open(gpu.uuid, memory_bytes));
  TP_ASSIGN_OR_RETURN(const std::uint64_t pageable_count,
                      session.count_for(cuda::LinkCopy::kToPageable, kMemoryTurn));
  TP_ASSIGN_OR_RETURN(const std::uint64_t pinned_count,
                      session.count_for(cuda::LinkCopy::kToPinned, kMemoryTurn));
  const auto name = [&](const char* memory) { return fmt::format("GPU {}, {}", index, memory); };
  TP_RETURN_IF_ERROR(compare(
      {.what = "h2d",
       .measured = {.name = name("pageable"), .bytes_per_s = {}},
       .limit = BenchSeries{.name = name("pinned"), .bytes_per_s = {}}},
      [&] { return session.rate(cuda::LinkCopy::kToPageable, pageable_count); },
      [&] { return session.rate(cuda::LinkCopy::kToPinned, pinned_count); }, options, report));
  report.lines.push_back({.what = "h2d", .measured = *report.lines.back().limit});
  return {};
}

}  // namespace

Result<void> bench_h2d(const plan::Hardware& hardware, const BenchOptions& options,
                       BenchReport& report) {
  announce(options, "links to GPUs");
  const Result<cuda::Driver> driver = cuda::Driver::load();
  if (!driver || hardware.gpus.empty()) {
    report.left_out.push_back(
        {.what = "h2d", .why = driver ? hardware.gpu_note : driver.error().message()});
    return {};
  }
  for (std::size_t index = 0; index < hardware.gpus.size(); ++index) {
    Result<void> measured = h2d_lines(*driver, hardware, index, options, report);
    if (!measured && measured.error().code() == ErrorCode::kDevice) {
      report.left_out.push_back(
          {.what = "h2d",
           .why = fmt::format("GPU {}: {}", index, std::move(measured).error().message())});
    } else if (!measured) {
      return measured;
    }
  }
  return {};
}

}  // namespace trash_panda::runtime
