// What expanding fp8 weights costs, beside plain copies that move the same bytes, in the same run:
//
//   expand [--megabytes N] [--rounds N] [--only NAME]
//
// One thread, E4M3 to BF16, for each kind of scale. The copy reads one byte and writes two past the
// caches, as fast as the memory allows: what an expansion can't beat. In each round the copy and
// all implementations take turns, so that whatever else the machine does meets all alike, and each
// works on more bytes than caches hold. Times are the thread's CPU seconds, printed as medians;
// ratios are medians of each round's.

#include "trash_panda/runtime/expand.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/error.h"

#include "cpu_time.h"
#include "probe/memory_work.h"

namespace {

using namespace trash_panda;
using format::Dtype;
using format::Granularity;
using format::Shape;
using runtime::ExpandImplementation;
using runtime::ExpandSource;

constexpr std::size_t kWeightColumns = 4096;

struct ExpandOptions {
  std::size_t payload_bytes = std::size_t{256} << 20U;
  int round_count = 9;
  std::string only;
};

struct ScaleKind {
  std::string_view name;
  Granularity granularity;
  std::uint64_t rows;  ///< Of a tile; 0: all.
  std::uint64_t columns;
};

constexpr ScaleKind kScaleKinds[] = {
    {"tensor", Granularity::kTensor, 0, kWeightColumns},
    {"row", Granularity::kRow, 1, kWeightColumns},
    {"block 128x128", Granularity::kBlock, 128, 128},
    {"group 1x32", Granularity::kBlock, 1, 32},
};

using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;

/// On an address that any vector likes, as slots of the streamer are.
Memory allocate(std::size_t size_bytes) {
  constexpr std::size_t kPageBytes = 4096;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(
                    kPageBytes, (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes)),
                &std::free);
  std::memset(memory.get(), 1, size_bytes);
  return memory;
}

struct TimedExpansion {
  std::string name;
  const ExpandImplementation* implementation;
  const ScaleKind* kind;
  std::vector<double> times_s = {};
};

void compare_expansions(const ExpandOptions& options) {
  const std::size_t rows = options.payload_bytes / kWeightColumns;
  const Shape shape = {rows, kWeightColumns};
  const std::size_t size_bytes = rows * kWeightColumns;
  const Memory payload = allocate(size_bytes);
  const Memory target = allocate(2 * size_bytes);
  const std::span<const std::byte> codes(payload.get(), size_bytes);
  std::mt19937 random(1);
  // Weights are numbers: all codes but the two NaN.
  std::generate_n(payload.get(), size_bytes, [&] {
    const unsigned code = random() & 0xffU;
    return static_cast<std::byte>((code & 0x7fU) == 0x7f ? 0 : code);
  });

  std::vector<TimedExpansion> timed;
  for (const ScaleKind& kind : kScaleKinds) {
    for (const ExpandImplementation& implementation : runtime::expand_implementations()) {
      if (implementation.is_supported &&
          (options.only.empty() || options.only == implementation.name)) {
        timed.push_back({.name = fmt::format("{} {}", kind.name, implementation.name),
                         .implementation = &implementation,
                         .kind = &kind});
      }
    }
  }
  std::vector<double> copy_s;
  for (int round = 0; round < options.round_count; ++round) {
    copy_s.push_back(bench::measure_cpu_s([&] { runtime::copy_twice(codes, target.get()); }));
    for (TimedExpansion& one : timed) {
      const ScaleKind& kind = *one.kind;
      const std::size_t grid_rows = kind.rows == 0 ? 1 : (rows + kind.rows - 1) / kind.rows;
      const std::vector<float> scales(grid_rows * (kWeightColumns / kind.columns), 0.0123F);
      one.times_s.push_back(bench::measure_cpu_s([&] {
        runtime::expand({.dtype = Dtype::kF8E4M3,
                         .shape = &shape,
                         .payload = codes,
                         .scale = scales,
                         .granularity = kind.granularity,
                         .block_rows = kind.rows,
                         .block_columns = kind.columns},
                        Dtype::kBf16, {target.get(), 2 * size_bytes}, *one.implementation);
      }));
    }
  }
  fmt::print("{} bytes of E4M3 to BF16, {} rounds\n", size_bytes, options.round_count);
  const auto print_line = [&](std::string_view name, const std::vector<double>& times_s) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < times_s.size(); ++i) {
      ratios.push_back(copy_s[i] / times_s[i]);
    }
    fmt::print("{:<24} {:8.2f} GB/s   {:5.2f} x copy\n", name,
               static_cast<double>(size_bytes) / 1e9 / bench::upper_median(times_s),
               bench::upper_median(ratios));
  };
  print_line("copy, 1 read, 2 written", copy_s);
  for (const TimedExpansion& one : timed) {
    print_line(one.name, one.times_s);
  }
}

}  // namespace

int main(int argument_count, char** arguments) {
  ExpandOptions options;
  for (int i = 1; i + 1 < argument_count; i += 2) {
    const std::string_view name = arguments[i];
    const std::string value = arguments[i + 1];
    if (name == "--megabytes") {
      options.payload_bytes = std::stoull(value) << 20U;
    } else if (name == "--rounds") {
      options.round_count = std::stoi(value);
    } else if (name == "--only") {
      options.only = value;
    } else {
      fmt::print(stderr, "there is no option {} {}\n", name, value);
      return 2;
    }
  }
  compare_expansions(options);
  return 0;
}
