// What the exponent code costs, beside memcpy() of what it decodes to, in the same run:
//
//   exponent_code [--dtype bf16|f32] [--file ELEMENTS] [--megabytes N] [--rounds N]
//                 [--only NAME]
//
// One thread. Without a file the weights are normally distributed; a shorter file is repeated. In
// each round memcpy, decoders and encoders take turns, so that whatever else the machine does meets
// all alike, and each works on more bytes than caches hold, whose last reader was another one.
// Times are the thread's CPU seconds, printed as medians; ratios are medians of each round's.

#include "trash_panda/format/exponent_code.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/error.h"

#include "cpu_time.h"

namespace {

using namespace trash_panda;
using format::Dtype;
using format::ExponentImplementation;
using Bytes = std::vector<std::byte>;

struct BenchOptions {
  Dtype dtype = Dtype::kBf16;
  std::string file;
  std::size_t size_bytes = std::size_t{256} << 20U;
  int round_count = 9;
  std::string only;
};

Bytes read_or_make_weights(const BenchOptions& options) {
  const std::size_t width_bytes = format::dtype_bits(options.dtype) / 8;
  Bytes weights;
  if (options.file.empty()) {
    std::mt19937_64 random(1);
    std::normal_distribution<float> normal(0, 0.02F);
    weights.resize(std::min<std::size_t>(options.size_bytes, std::size_t{64} << 20U));
    for (std::size_t i = 0; i < weights.size(); i += width_bytes) {
      // A bf16 is the last bytes of an f32.
      const float weight = normal(random);
      const auto bytes = std::as_bytes(std::span(&weight, 1)).last(width_bytes);
      std::ranges::copy(bytes, &weights[i]);
    }
  } else {
    std::ifstream file(options.file, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    weights.assign(std::as_bytes(std::span(text)).begin(), std::as_bytes(std::span(text)).end());
    weights.resize(weights.size() / width_bytes * width_bytes);
  }
  if (weights.empty()) {
    fmt::print(stderr, "{} has no weights\n", options.file);
    std::exit(3);
  }
  const std::size_t once_bytes = weights.size();
  while (weights.size() < options.size_bytes) {
    weights.insert(weights.end(), weights.begin(),
                   weights.begin() + static_cast<std::ptrdiff_t>(once_bytes));
  }
  return weights;
}

struct Timed {
  const ExponentImplementation* implementation;
  std::vector<double> decode_s;
  std::vector<double> encode_s;
};

void print_line(std::string_view name, std::size_t size_bytes, const std::vector<double>& times_s,
                const std::vector<double>& memcpy_s) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < times_s.size(); ++i) {
    ratios.push_back(memcpy_s[i] / times_s[i]);
  }
  fmt::print("{:<20} {:8.2f} GB/s   {:5.2f} x memcpy\n", name,
             static_cast<double>(size_bytes) / 1e9 / bench::upper_median(times_s),
             bench::upper_median(ratios));
}

void run_rounds(const BenchOptions& options) {
  const Bytes raw = read_or_make_weights(options);
  // Where a decoder may write past the caches: what a slot of the streamer is aligned to.
  const std::unique_ptr<std::byte, decltype(&std::free)> target(
      static_cast<std::byte*>(std::aligned_alloc(4096, (raw.size() + 4095) / 4096 * 4096)),
      &std::free);
  const std::span<std::byte> decoded(target.get(), raw.size());
  std::memset(decoded.data(), 1, decoded.size());
  Bytes coded(format::exponent_coded_bytes_max(options.dtype,
                                               raw.size() * 8 / format::dtype_bits(options.dtype)),
              std::byte{1});
  std::uint64_t coded_bytes = 0;
  std::vector<Timed> timed;
  for (const ExponentImplementation& implementation : format::exponent_implementations()) {
    if (implementation.is_supported &&
        (options.only.empty() || options.only == implementation.name)) {
      timed.push_back({&implementation, {}, {}});
    }
  }
  std::vector<double> memcpy_s;
  for (int round = 0; round < options.round_count; ++round) {
    memcpy_s.push_back(
        bench::measure_cpu_s([&] { std::memcpy(decoded.data(), raw.data(), raw.size()); }));
    for (Timed& one : timed) {
      one.encode_s.push_back(bench::measure_cpu_s([&] {
        coded_bytes = format::encode_exponents(options.dtype, raw, coded, *one.implementation);
      }));
      std::memset(decoded.data(), 0xee, decoded.size());
      one.decode_s.push_back(bench::measure_cpu_s([&] {
        TP_ASSERT(format::decode_exponents(options.dtype, std::span(coded).first(coded_bytes),
                                           decoded, {.implementation = one.implementation}));
      }));
      TP_ASSERT(std::ranges::equal(decoded, raw));
    }
  }
  fmt::print("{} bytes of {} as {}, {} rounds; coded {} bytes, {:.4f} of raw\n", raw.size(),
             options.file.empty() ? "normal numbers" : options.file,
             format::dtype_name(options.dtype), options.round_count, coded_bytes,
             static_cast<double>(coded_bytes) / static_cast<double>(raw.size()));
  print_line("memcpy", raw.size(), memcpy_s, memcpy_s);
  for (const Timed& one : timed) {
    print_line(fmt::format("decode {}", one.implementation->name), raw.size(), one.decode_s,
               memcpy_s);
    print_line(fmt::format("encode {}", one.implementation->name), raw.size(), one.encode_s,
               memcpy_s);
  }
}

}  // namespace

int main(int argument_count, char** arguments) {
  BenchOptions options;
  for (int i = 1; i + 1 < argument_count; i += 2) {
    const std::string_view name = arguments[i];
    const std::string value = arguments[i + 1];
    if (name == "--dtype" && (value == "bf16" || value == "f32")) {
      options.dtype = value == "f32" ? Dtype::kF32 : Dtype::kBf16;
    } else if (name == "--file") {
      options.file = value;
    } else if (name == "--megabytes") {
      options.size_bytes = std::stoull(value) << 20U;
    } else if (name == "--rounds") {
      options.round_count = std::stoi(value);
    } else if (name == "--only") {
      options.only = value;
    } else {
      fmt::print(stderr, "there is no option {} {}\n", name, value);
      return 2;
    }
  }
  run_rounds(options);
  return 0;
}
