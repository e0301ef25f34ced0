#include "memory_rates.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "trash_panda/base/units.h"
#include "trash_panda/format/manifest.h"

#include "memory_work.h"
#include "tensor_maker.h"
#include "throughput.h"

namespace trash_panda::runtime {

namespace {

/// Source and target together: several times the largest caches that desktops have.
constexpr std::uint64_t kCopyBytes = 512 * kMiB;
/// Of fp8 for each thread; with what it becomes, more than the thread's share of the caches.
constexpr std::uint64_t kWeightBytes = 16 * kMiB;

/// Rates of all threads together, and of one.
struct ThreadRates {
  std::optional<std::uint64_t> all_bytes_per_s = {};
  std::optional<std::uint64_t> one_bytes_per_s = {};
};

/// @param work  Makes the work of a number of threads.
ThreadRates measure_work(const EffortPlan& effort, StopFlag stop, std::size_t thread_count,
                         const std::function<ThreadWork(std::size_t)>& work) {
  ThreadRates rates;
  rates.one_bytes_per_s = median_throughput(1, effort, stop, work(1));
  rates.all_bytes_per_s = thread_count == 1
                              ? rates.one_bytes_per_s
                              : median_throughput(thread_count, effort, stop, work(thread_count));
  return rates;
}

ThreadRates measure_decoding(const EffortPlan& effort, std::uint64_t memory_bytes_max,
                             StopFlag stop, std::size_t thread_count, format::TensorCoding coding) {
  const Result<DecodeWork> work =
      DecodeWork::create(coding, thread_count, kWeightBytes, memory_bytes_max);
  return work
             ? measure_work(effort, stop, thread_count, [&](std::size_t) { return work->decode(); })
             : ThreadRates();
}

}  // namespace

std::size_t memory_thread_count(const plan::Hardware& hardware) {
  constexpr std::uint64_t kThreadsMax = 64;  // Beyond these RAM is the limit on every machine.
  return std::clamp<std::uint64_t>(hardware.cpu.thread_count, 1, kThreadsMax);
}

void measure_memory_rates(const EffortPlan& effort, std::uint64_t memory_bytes_max, StopFlag stop,
                          plan::Hardware& hardware) {
  const std::size_t thread_count = memory_thread_count(hardware);
  if (const Result<CopyWork> work = CopyWork::create(std::min(kCopyBytes, memory_bytes_max))) {
    const ThreadRates copy = measure_work(effort, stop, thread_count,
                                          [&](std::size_t threads) { return work->copy(threads); });
    hardware.ram_copy_bytes_per_s = copy.all_bytes_per_s;
    hardware.ram_copy_one_thread_bytes_per_s = copy.one_bytes_per_s;
  }
  plan::CpuInfo& cpu = hardware.cpu;
  const std::size_t tensor_threads = std::min(thread_count, kTensorThreadCountMax);
  if (const Result<ExpandWork> work =
          ExpandWork::create(tensor_threads, kWeightBytes, memory_bytes_max)) {
    const ThreadRates expand =
        measure_work(effort, stop, tensor_threads, [&](std::size_t) { return work->expand(); });
    cpu.expand.fp8_bytes_per_s = expand.all_bytes_per_s;
    cpu.expand_one_thread.fp8_bytes_per_s = expand.one_bytes_per_s;
  }
  const ThreadRates exponent = measure_decoding(effort, memory_bytes_max, stop, tensor_threads,
                                                format::TensorCoding::kExponent);
  cpu.expand.exponent_bytes_per_s = exponent.all_bytes_per_s;
  cpu.expand_one_thread.exponent_bytes_per_s = exponent.one_bytes_per_s;
  const ThreadRates zstd =
      measure_decoding(effort, memory_bytes_max, stop, tensor_threads, format::TensorCoding::kZstd);
  cpu.expand.zstd_bytes_per_s = zstd.all_bytes_per_s;
  cpu.expand_one_thread.zstd_bytes_per_s = zstd.one_bytes_per_s;
}

}  // namespace trash_panda::runtime
