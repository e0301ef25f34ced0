#include "memory_work.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <utility>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "trash_panda/base/units.h"
#include "trash_panda/format/chunk_code.h"
#include "trash_panda/runtime/expand.h"

namespace trash_panda::runtime {

namespace {

/// One call to memcpy: so long that its start does not count, so short that time is kept.
constexpr std::uint64_t kCopyPieceBytes = 16 * kMiB;
/// One call to expand().
constexpr std::uint64_t kWeightPieceBytes = 512 * kKiB;
constexpr std::uint64_t kWeightColumns = 4096;
/// What is coded to be decoded: a chunk of zstd code, several of exponent code.
constexpr std::uint64_t kDecodedPieceBytes = kMiB;

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

Error too_little_memory() {
  return {ErrorCode::kFailed, "too little memory is free to measure in"};
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

}  // namespace

void copy_twice(std::span<const std::byte> from, std::byte* to) {
#ifdef __x86_64__
  for (std::size_t at = 0; at + 32 <= from.size(); at += 32) {
    const auto* source = reinterpret_cast<const __m128i*>(from.data() + at);
    auto* target = reinterpret_cast<__m128i*>(to + 2 * at);
    const __m128i low = _mm_loadu_si128(source);
    const __m128i high = _mm_loadu_si128(source + 1);
    _mm_stream_si128(target, low);
    _mm_stream_si128(target + 1, low);
    _mm_stream_si128(target + 2, high);
    _mm_stream_si128(target + 3, high);
  }
  _mm_sfence();
#else
  std::memcpy(to, from.data(), from.size());
  std::memcpy(to + from.size(), from.data(), from.size());
#endif
}

Result<CopyWork> CopyWork::create(std::uint64_t memory_bytes) {
  CopyWork work;
  work.half_bytes_ = memory_bytes / 2;
  TP_ASSIGN_OR_RETURN(work.source_, AlignedBuffer::create(work.half_bytes_));
  TP_ASSIGN_OR_RETURN(work.target_, AlignedBuffer::create(work.half_bytes_));
  // Written once: untouched pages are all the same page of zeros.
  std::memset(work.source_.data(), 1, work.half_bytes_);
  std::memset(work.target_.data(), 2, work.half_bytes_);
  return work;
}

ThreadWork CopyWork::copy(std::size_t thread_count) const {
  const std::uint64_t share_bytes = half_bytes_ / thread_count;
  const std::uint64_t piece_bytes = std::min(kCopyPieceBytes, share_bytes);
  return [source = source_.data(), target = target_.data(), piece_bytes,
          regions = share_out(thread_count, share_bytes)](std::size_t index) mutable {
    const std::uint64_t at = regions[index].take(piece_bytes);
    std::memcpy(target + at, source + at, piece_bytes);
    return piece_bytes;
  };
}

Result<ExpandWork> ExpandWork::create(std::size_t thread_count, std::uint64_t weight_bytes,
                                      std::uint64_t memory_bytes_max) {
  constexpr std::uint64_t kBytesPerWeightByte = 3;  // fp8 and its bf16.
  ExpandWork work;
  work.thread_count_ = thread_count;
  work.share_bytes_ =
      std::min(weight_bytes, memory_bytes_max / thread_count / kBytesPerWeightByte) /
      kWeightPieceBytes * kWeightPieceBytes;
  if (work.share_bytes_ == 0) {
    return std::unexpected(too_little_memory());
  }
  TP_ASSIGN_OR_RETURN(work.payload_, AlignedBuffer::create(thread_count * work.share_bytes_));
  TP_ASSIGN_OR_RETURN(work.expanded_, AlignedBuffer::create(2 * thread_count * work.share_bytes_));
  std::memset(work.payload_.data(), 0x3a, work.payload_.size_bytes());
  std::memset(work.expanded_.data(), 0, work.expanded_.size_bytes());
  return work;
}

ThreadWork ExpandWork::work(
    std::function<void(std::span<const std::byte>, std::byte*)> piece) const {
  return [piece = std::move(piece), payload = payload_.span(), expanded = expanded_.data(),
          regions = share_out(thread_count_, share_bytes_)](std::size_t index) mutable {
    const std::uint64_t at = regions[index].take(kWeightPieceBytes);
    piece(payload.subspan(at, kWeightPieceBytes), expanded + 2 * at);
    return kWeightPieceBytes;
  };
}

ThreadWork ExpandWork::expand() const {
  return work([](std::span<const std::byte> payload, std::byte* target) {
    static const format::Shape kShape = {kWeightPieceBytes / kWeightColumns, kWeightColumns};
    constexpr float kScale = 0.25F;
    runtime::expand({.dtype = format::Dtype::kF8E4M3,
                     .shape = &kShape,
                     .payload = payload,
                     .scale = std::span(&kScale, 1)},
                    format::Dtype::kBf16, {target, 2 * kWeightPieceBytes});
  });
}

ThreadWork ExpandWork::copy() const {
  return work(copy_twice);
}

Result<DecodeWork> DecodeWork::create(format::TensorCoding coding, std::size_t thread_count,
                                      std::uint64_t weight_bytes, std::uint64_t memory_bytes_max) {
  DecodeWork work;
  work.coding_ = coding;
  work.dtype_ =
      coding == format::TensorCoding::kZstd ? format::Dtype::kF8E4M3 : format::Dtype::kBf16;
  work.thread_count_ = thread_count;
  std::vector<std::byte> raw = work.dtype_ == format::Dtype::kBf16 ? bf16_weights() : fp8_weights();
  raw.resize(std::min<std::uint64_t>(raw.size(), format::chunk_raw_bytes(coding, work.dtype_)));
  std::vector<std::byte> code(format::coded_bytes_max(coding, work.dtype_, raw.size()));
  TP_ASSIGN_OR_RETURN(work.coded_bytes_, format::encode_chunks(coding, work.dtype_, raw, code));
  work.raw_bytes_ = raw.size();
  // Raw and coded; a code is never much larger than what it holds.
  work.chunk_count_ = std::min(weight_bytes / work.raw_bytes_,
                               memory_bytes_max / thread_count / (2 * work.raw_bytes_));
  if (work.chunk_count_ == 0) {
    return std::unexpected(too_little_memory());
  }
  const std::uint64_t chunk_count = thread_count * work.chunk_count_;
  TP_ASSIGN_OR_RETURN(work.coded_, AlignedBuffer::create(chunk_count * work.coded_bytes_));
  TP_ASSIGN_OR_RETURN(work.raw_, AlignedBuffer::create(chunk_count * work.raw_bytes_));
  for (std::uint64_t chunk = 0; chunk < chunk_count; ++chunk) {
    std::memcpy(work.coded_.data() + chunk * work.coded_bytes_, code.data(), work.coded_bytes_);
  }
  std::memset(work.raw_.data(), 0, work.raw_.size_bytes());
  return work;
}

ThreadWork DecodeWork::decode() const {
  return [coding = coding_, dtype = dtype_, coded = coded_.span(), raw = raw_.span(),
          coded_bytes = coded_bytes_, raw_bytes = raw_bytes_,
          regions = share_out(thread_count_, chunk_count_)](std::size_t index) mutable {
    const std::uint64_t chunk = regions[index].take(1);
    const Result<void> decoded =
        format::decode_chunk(coding, dtype, coded.subspan(chunk * coded_bytes, coded_bytes),
                             raw.subspan(chunk * raw_bytes, raw_bytes), format::DecodedUse::kLater);
    TP_ASSERT(decoded);
    return raw_bytes;
  };
}

}  // namespace trash_panda::runtime
