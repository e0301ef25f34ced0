#include "memory_rates.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/chunk_code.h"
#include "trash_panda/runtime/expand.h"

#include "tensor_maker.h"
#include "throughput.h"

namespace trash_panda::runtime {

namespace {

/// Source and target together: several times the largest caches that desktops have.
constexpr std::uint64_t kCopyBytes = 512 * kMiB;
/// One call to memcpy: so long that its start does not count, so short that time is kept.
constexpr std::uint64_t kCopyPieceBytes = 16 * kMiB;
/// Of fp8 for each thread; with what it becomes, more than the thread's share of the caches.
constexpr std::uint64_t kWeightBytes = 16 * kMiB;
/// One call to expand().
constexpr std::uint64_t kWeightPieceBytes = 512 * kKiB;
constexpr std::uint64_t kWeightColumns = 4096;
/// What is coded to be decoded: a chunk of zstd code, several of exponent code.
constexpr std::uint64_t kDecodedPieceBytes = kMiB;
/// Beyond these RAM is the limit on every machine.
constexpr std::uint64_t kThreadsMax = 64;

/// One thread's part of a buffer, gone through piece by piece, round and round.
class Region {
 public:
  Region(std::size_t index, std::uint64_t size_bytes)
      : begin_(index * size_bytes), end_(begin_ + size_bytes), next_(begin_) {}

  /// Offset of the next piece in the buffer.
  std::uint64_t take(std::uint64_t piece_bytes) {
    const std::uint64_t at = next_;
    next_ = next_ + 2 * piece_bytes <= end_ ? next_ + piece_bytes : begin_;
    return at;
  }

 private:
  std::uint64_t begin_;
  std::uint64_t end_;
  std::uint64_t next_;
};

std::vector<Region> share_out(std::size_t thread_count, std::uint64_t size_bytes) {
  std::vector<Region> regions;
  for (std::size_t index = 0; index < thread_count; ++index) {
    regions.emplace_back(index, size_bytes);
  }
  return regions;
}

void measure_copies(const EffortPlan& effort, std::uint64_t memory_bytes_max, StopFlag stop,
                    std::size_t thread_count, plan::Hardware& hardware) {
  const std::uint64_t half_bytes = std::min(kCopyBytes, memory_bytes_max) / 2;
  const Result<AlignedBuffer> source = AlignedBuffer::create(half_bytes);
  const Result<AlignedBuffer> target = AlignedBuffer::create(half_bytes);
  if (!source || !target) {
    return;
  }
  // Written once: untouched pages are all the same page of zeros.
  std::memset(source->data(), 1, half_bytes);
  std::memset(target->data(), 2, half_bytes);
  const auto rate = [&](std::size_t threads) {
    const std::uint64_t share_bytes = half_bytes / threads;
    const std::uint64_t piece_bytes = std::min(kCopyPieceBytes, share_bytes);
    std::vector<Region> regions = share_out(threads, share_bytes);
    return median_throughput(threads, effort, stop, [&](std::size_t index) {
      const std::uint64_t at = regions[index].take(piece_bytes);
      std::memcpy(target->data() + at, source->data() + at, piece_bytes);
      return piece_bytes;
    });
  };
  hardware.ram_copy_one_thread_bytes_per_s = rate(1);
  hardware.ram_copy_bytes_per_s =
      thread_count == 1 ? hardware.ram_copy_one_thread_bytes_per_s : rate(thread_count);
}

void measure_expansion(const EffortPlan& effort, std::uint64_t memory_bytes_max, StopFlag stop,
                       std::size_t thread_count, plan::Hardware& hardware) {
  constexpr std::uint64_t kBytesPerWeightByte = 3;  // fp8 and its bf16.
  const std::uint64_t share_bytes =
      std::min(kWeightBytes, memory_bytes_max / thread_count / kBytesPerWeightByte) /
      kWeightPieceBytes * kWeightPieceBytes;
  const Result<AlignedBuffer> payload = AlignedBuffer::create(thread_count * share_bytes);
  const Result<AlignedBuffer> expanded = AlignedBuffer::create(2 * thread_count * share_bytes);
  if (share_bytes == 0 || !payload || !expanded) {
    return;
  }
  std::memset(payload->data(), 0x3a, payload->size_bytes());
  std::memset(expanded->data(), 0, expanded->size_bytes());
  const format::Shape shape = {kWeightPieceBytes / kWeightColumns, kWeightColumns};
  const float scale = 0.25F;
  std::vector<Region> regions = share_out(thread_count, share_bytes);
  const auto expand_piece = [&](std::size_t index) {
    const std::uint64_t at = regions[index].take(kWeightPieceBytes);
    expand({.dtype = format::Dtype::kF8E4M3,
            .shape = &shape,
            .payload = payload->span().subspan(at, kWeightPieceBytes),
            .scale = std::span(&scale, 1)},
           format::Dtype::kBf16, expanded->span().subspan(2 * at, 2 * kWeightPieceBytes));
    return kWeightPieceBytes;
  };
  plan::CpuInfo& cpu = hardware.cpu;
  cpu.expand_one_thread.fp8_bytes_per_s = median_throughput(1, effort, stop, expand_piece);
  cpu.expand.fp8_bytes_per_s = thread_count == 1
                                   ? cpu.expand_one_thread.fp8_bytes_per_s
                                   : median_throughput(thread_count, effort, stop, expand_piece);
}

/// The bits of normally distributed f32, as weights are.
std::uint32_t next_weight_bits(std::mt19937& generator) {
  std::normal_distribution<float> weights(0, 0.02F);
  return std::bit_cast<std::uint32_t>(weights(generator));
}

std::vector<std::byte> bf16_weights() {
  std::mt19937 generator(1);
  std::vector<std::byte> raw(kDecodedPieceBytes);
  for (std::size_t at = 0; at < raw.size(); at += 2) {
    const auto half = static_cast<std::uint16_t>(next_weight_bits(generator) >> 16);
    std::memcpy(&raw[at], &half, sizeof(half));
  }
  return raw;
}

/// Codes of F8_E4M3 whose largest is about 448, as a scale makes them; not rounded, which makes no
/// difference here.
std::vector<std::byte> fp8_weights() {
  constexpr int kExponentOfScale = 12;
  std::mt19937 generator(1);
  std::vector<std::byte> raw(kDecodedPieceBytes);
  for (std::byte& code : raw) {
    const std::uint32_t bits = next_weight_bits(generator);
    const int exponent = static_cast<int>(bits >> 23 & 0xff) - 120 + kExponentOfScale;
    const std::uint32_t magnitude =
        exponent < 0 ? 0 : static_cast<std::uint32_t>(std::min(exponent, 14)) << 3;
    code = static_cast<std::byte>(bits >> 31 << 7 | magnitude | (bits >> 20 & 7));
  }
  return raw;
}

/// One call to decode_chunk() each; its code's length decides how fast a chunk is decoded.
struct DecodedChunk {
  format::TensorCoding coding;
  format::Dtype dtype;
  std::uint64_t raw_bytes;
  std::vector<std::byte> code;
};

DecodedChunk code_weights(format::TensorCoding coding, format::Dtype dtype,
                          std::vector<std::byte> raw) {
  raw.resize(std::min<std::uint64_t>(raw.size(), format::chunk_raw_bytes(coding, dtype)));
  DecodedChunk chunk = {.coding = coding, .dtype = dtype, .raw_bytes = raw.size(), .code = {}};
  chunk.code.resize(format::coded_bytes_max(coding, dtype, raw.size()));
  const Result<std::uint64_t> coded_bytes = format::encode_chunks(coding, dtype, raw, chunk.code);
  chunk.code.resize(coded_bytes.value_or(0));
  return chunk;
}

/// What decoding makes in a second, of all threads and of one.
struct DecodingRates {
  std::optional<std::uint64_t> all_bytes_per_s = {};
  std::optional<std::uint64_t> one_bytes_per_s = {};
};

DecodingRates measure_decoding(const EffortPlan& effort, std::uint64_t memory_bytes_max,
                               StopFlag stop, std::size_t thread_count, const DecodedChunk& chunk) {
  const std::vector<std::byte>& code = chunk.code;
  // Raw and coded; a code is never much larger than what it holds.
  const std::uint64_t pieces_of_memory = memory_bytes_max / thread_count / (2 * chunk.raw_bytes);
  const std::uint64_t piece_count = std::min(kWeightBytes / chunk.raw_bytes, pieces_of_memory);
  const Result<AlignedBuffer> coded =
      AlignedBuffer::create(thread_count * piece_count * code.size());
  const Result<AlignedBuffer> raw =
      AlignedBuffer::create(thread_count * piece_count * chunk.raw_bytes);
  if (piece_count == 0 || code.empty() || !coded || !raw) {
    return {};
  }
  for (std::uint64_t piece = 0; piece < thread_count * piece_count; ++piece) {
    std::ranges::copy(code, coded->data() + piece * code.size());
  }
  std::memset(raw->data(), 0, raw->size_bytes());
  std::vector<Region> regions = share_out(thread_count, piece_count);
  const auto decode_piece = [&](std::size_t index) {
    const std::uint64_t piece = regions[index].take(1);
    const Result<void> decoded = format::decode_chunk(
        chunk.coding, chunk.dtype, coded->span().subspan(piece * code.size(), code.size()),
        raw->span().subspan(piece * chunk.raw_bytes, chunk.raw_bytes), format::DecodedUse::kLater);
    TP_ASSERT(decoded);
    return chunk.raw_bytes;
  };
  DecodingRates rates;
  rates.one_bytes_per_s = median_throughput(1, effort, stop, decode_piece);
  rates.all_bytes_per_s = thread_count == 1
                              ? rates.one_bytes_per_s
                              : median_throughput(thread_count, effort, stop, decode_piece);
  return rates;
}

}  // namespace

void measure_memory_rates(const EffortPlan& effort, std::uint64_t memory_bytes_max, StopFlag stop,
                          plan::Hardware& hardware) {
  const std::size_t thread_count =
      std::clamp<std::uint64_t>(hardware.cpu.thread_count, 1, kThreadsMax);
  measure_copies(effort, memory_bytes_max, stop, thread_count, hardware);
  const std::size_t tensor_threads = std::min(thread_count, kTensorThreadCountMax);
  measure_expansion(effort, memory_bytes_max, stop, tensor_threads, hardware);
  plan::CpuInfo& cpu = hardware.cpu;
  const DecodingRates exponent = measure_decoding(
      effort, memory_bytes_max, stop, tensor_threads,
      code_weights(format::TensorCoding::kExponent, format::Dtype::kBf16, bf16_weights()));
  cpu.expand.exponent_bytes_per_s = exponent.all_bytes_per_s;
  cpu.expand_one_thread.exponent_bytes_per_s = exponent.one_bytes_per_s;
  const DecodingRates zstd = measure_decoding(
      effort, memory_bytes_max, stop, tensor_threads,
      code_weights(format::TensorCoding::kZstd, format::Dtype::kF8E4M3, fp8_weights()));
  cpu.expand.zstd_bytes_per_s = zstd.all_bytes_per_s;
  cpu.expand_one_thread.zstd_bytes_per_s = zstd.one_bytes_per_s;
}

}  // namespace trash_panda::runtime
