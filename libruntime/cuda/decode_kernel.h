#pragma once

// How the exponent code becomes weights on a GPU: a tile for each warp. One source for the host and
// the GPU, see number_formats.h: on the host one thread does what the lanes of a warp do, lane by
// lane. The code is described in docs/pack_format.md, "The exponent code".

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "cuda/expand_kernel.h"
#include "cuda/number_formats.h"

namespace trash_panda::runtime::cuda {

// The layout of chunks. What a chunk says of itself has been checked on the host, all but that its
// codes have as many escapes and literals as their tile says.
inline constexpr std::uint64_t kChunkElements = 65'536;
inline constexpr std::uint64_t kTileElements = 2'048;
inline constexpr std::uint64_t kGroupElements = 64;
inline constexpr std::uint64_t kChunkUnitBytes = 64;  ///< Of sizes and places of chunks.
inline constexpr std::uint64_t kRawChunkOffset = 64;
inline constexpr std::uint64_t kFormOffset = 8;
inline constexpr std::uint64_t kFirstTableOffset = 9;
inline constexpr std::uint64_t kSecondTableOffset = 12;
inline constexpr std::uint64_t kTileRecordsOffset = 32;
inline constexpr std::uint64_t kTileRecordBytes = 4;
inline constexpr unsigned kEscapeCode = 3;   ///< Of two bits: there is a second code.
inline constexpr unsigned kLiteralCode = 7;  ///< Of three bits: there is a byte.

inline constexpr unsigned kWarpLanes = 32;
static_assert(kChunkElements / kTileElements == kWarpLanes, "a lane for each tile of a chunk");
static_assert(kRunElements == 8, "16 bits of codes");

/// A value for each lane of a warp; on the GPU each lane has its own.
template <class T>
class PerLane {
 public:
#if defined(__CUDA_ARCH__)
  __device__ __forceinline__ T& operator[](unsigned /*lane*/) { return value_; }

 private:
  T value_;
#else
  T& operator[](unsigned lane) { return values_[lane]; }

 private:
  std::array<T, kWarpLanes> values_;
#endif
};

template <class Work>
TP_HOST_DEVICE_RUN void for_each_lane(const Work& work) {
#if defined(__CUDA_ARCH__)
  work(threadIdx.x % kWarpLanes);
#else
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    work(lane);
  }
#endif
}

/// Makes each lane's number the sum of those before it. @return The sum of all.
TP_HOST_DEVICE_RUN std::uint32_t sum_before(PerLane<std::uint32_t>& numbers) {
#if defined(__CUDA_ARCH__)
  constexpr unsigned kAllLanes = 0xffff'ffff;
  const unsigned lane = threadIdx.x % kWarpLanes;
  std::uint32_t sum = numbers[lane];
  for (unsigned step = 1; step < kWarpLanes; step *= 2) {
    const std::uint32_t before = __shfl_up_sync(kAllLanes, sum, step);
    sum += lane >= step ? before : 0;
  }
  numbers[lane] = sum - numbers[lane];
  return __shfl_sync(kAllLanes, sum, kWarpLanes - 1);
#else
  std::uint32_t sum = 0;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    const std::uint32_t number = numbers[lane];
    numbers[lane] = sum;
    sum += number;
  }
  return sum;
#endif
}

/// What one lane has, for all of them.
TP_HOST_DEVICE_RUN std::uint32_t value_of_lane(PerLane<std::uint32_t>& values, unsigned lane) {
#if defined(__CUDA_ARCH__)
  return __shfl_sync(0xffff'ffff, values[0], static_cast<int>(lane));
#else
  return values[lane];
#endif
}

TP_HOST_DEVICE std::uint32_t count_bits(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint32_t>(__popc(bits));
#else
  return static_cast<std::uint32_t>(std::popcount(bits));
#endif
}

/// What a launch decodes. Plain data, passed by value.
struct DecodeArguments {
  const std::uint8_t* coded;          ///< The chunks of a tensor, on a multiple of 64 bytes.
  const std::uint32_t* chunk_begins;  ///< Where each begins, in units of kChunkUnitBytes.
  void* target;                       ///< On a multiple of 16 bytes.
  std::uint64_t element_count;
  /// Becomes 1 when the codes of a tile are not those that it says; what it is decoded to is then
  /// unspecified. In memory of the host that the GPU writes to.
  std::uint32_t* damaged;
};

/// Elements that are coded: all bits of a BF16, the upper half of an F32.
struct Bf16Code {
  using Bits = std::uint16_t;
  static constexpr std::uint64_t kLowerBytes = 0;
  static TP_HOST_DEVICE Bits join(std::uint16_t upper, std::uint16_t /*lower*/) { return upper; }
  static TP_HOST_DEVICE float value(Bits bits) { return decode_bf16(bits); }
};
struct F32Code {
  using Bits = std::uint32_t;
  static constexpr std::uint64_t kLowerBytes = 2;
  static TP_HOST_DEVICE Bits join(std::uint16_t upper, std::uint16_t lower) {
    return static_cast<Bits>(upper) << 16 | lower;
  }
  static TP_HOST_DEVICE float value(Bits bits) { return std::bit_cast<float>(bits); }
};

/// Stands for a target of the code's own dtype.
struct Verbatim {};

/// What decoded bits become: rounded to another dtype, or
template <class Code, class Target>
struct Decoded {
  using Stored = typename Target::Stored;
  static TP_HOST_DEVICE Stored make(typename Code::Bits bits) {
    return Target::encode(Code::value(bits));
  }
};
/// what was coded, bit for bit.
template <class Code>
struct Decoded<Code, Verbatim> {
  using Stored = typename Code::Bits;
  static TP_HOST_DEVICE Stored make(Stored bits) { return bits; }
};

/// One tile of a coded chunk, found in it.
struct CodedTile {
  const std::uint8_t* chunk;
  const std::uint8_t* rests;         ///< A byte an element: its sign and mantissa.
  const std::uint8_t* codes;         ///< Two bits an element.
  const std::uint8_t* lower_halves;  ///< Of F32: two bytes an element.
  const std::uint8_t* escapes;       ///< Three bits an escape, by eights; then literals.
  std::uint32_t escape_count;
  std::uint32_t literal_count;

  /// The second code of an escape.
  [[nodiscard]] TP_HOST_DEVICE_RUN unsigned second_code(std::uint32_t escape) const {
    if (escape >= escape_count) {
      return 0;
    }
    const std::uint8_t* const octet = escapes + std::uint64_t{escape / 8} * 3;
    const unsigned bits =
        octet[0] | static_cast<unsigned>(octet[1]) << 8 | static_cast<unsigned>(octet[2]) << 16;
    return bits >> 3 * (escape % 8) & 7U;
  }
  [[nodiscard]] TP_HOST_DEVICE_RUN unsigned literal(std::uint32_t index) const {
    const std::uint64_t codes_bytes = std::uint64_t{(escape_count + 7) / 8} * 3;
    return index < literal_count ? escapes[codes_bytes + index] : 0;
  }
};

TP_HOST_DEVICE_RUN std::uint32_t load_16_bits(const std::uint8_t* from) {
  return from[0] | static_cast<std::uint32_t>(from[1]) << 8;
}

/// @param count  Elements of the chunk.
template <class Code>
TP_HOST_DEVICE_RUN CodedTile find_tile(const std::uint8_t* chunk, std::uint64_t count,
                                       unsigned tile) {
  const std::uint64_t tile_count = (count + kTileElements - 1) / kTileElements;
  const std::uint64_t filled = (count + kGroupElements - 1) / kGroupElements * kGroupElements;
  const std::uint64_t rests =
      (kTileRecordsOffset + tile_count * kTileRecordBytes + kChunkUnitBytes - 1) / kChunkUnitBytes *
      kChunkUnitBytes;
  const std::uint64_t lower_halves = rests + filled + filled / 4;
  PerLane<std::uint32_t> escape_bytes;
  for_each_lane([&](unsigned lane) {
    escape_bytes[lane] = 0;
    if (lane < tile_count) {
      const std::uint8_t* const record = chunk + kTileRecordsOffset + lane * kTileRecordBytes;
      escape_bytes[lane] = (load_16_bits(record) + 7) / 8 * 3 + load_16_bits(record + 2);
    }
  });
  sum_before(escape_bytes);
  const std::uint8_t* const record = chunk + kTileRecordsOffset + tile * kTileRecordBytes;
  const std::uint64_t begin = tile * kTileElements;
  return {.chunk = chunk,
          .rests = chunk + rests + begin,
          .codes = chunk + rests + filled + begin / 4,
          .lower_halves = chunk + lower_halves + Code::kLowerBytes * begin,
          .escapes =
              chunk + lower_halves + Code::kLowerBytes * filled + value_of_lane(escape_bytes, tile),
          .escape_count = load_16_bits(record),
          .literal_count = load_16_bits(record + 2)};
}

/// Stores what a run of elements became, but none behind the last element.
///
/// @param left_count  Elements from the run's first one to the last of all.
template <class T>
TP_HOST_DEVICE_RUN void store_run(const ElementRun<T>& run, T* target, std::uint64_t left_count) {
  if (left_count >= kRunElements) {
    *reinterpret_cast<ElementRun<T>*>(target) = run;
    return;
  }
  TP_NO_UNROLL
  for (std::uint64_t at = 0; at < left_count; ++at) {
    target[at] = run.values[at];
  }
}

/// Decodes a run of a tile.
///
/// @param codes     Of its eight elements, the first in the lowest bits.
/// @param escape    The first of its escapes among those of the tile.
/// @param literal   The first of its literals.
template <class Code, class Result>
TP_HOST_DEVICE_RUN ElementRun<typename Result::Stored> decode_run(const CodedTile& tile,
                                                                  std::uint64_t run,
                                                                  std::uint32_t codes,
                                                                  std::uint32_t escape,
                                                                  std::uint32_t literal) {
  const auto rests = reinterpret_cast<const ElementRun<std::uint8_t>*>(tile.rests)[run];
  ElementRun<std::uint16_t> lower = {};
  if constexpr (Code::kLowerBytes > 0) {
    lower = reinterpret_cast<const ElementRun<std::uint16_t>*>(tile.lower_halves)[run];
  }
  ElementRun<typename Result::Stored> made = {};
  for (std::uint64_t at = 0; at < kRunElements; ++at) {
    const unsigned code = codes >> 2 * at & 3U;
    unsigned exponent = 0;
    if (code != kEscapeCode) {
      exponent = tile.chunk[kFirstTableOffset + code];
    } else {
      const unsigned second = tile.second_code(escape++);
      exponent = second != kLiteralCode ? tile.chunk[kSecondTableOffset + second]
                                        : tile.literal(literal++);
    }
    const unsigned rest = rests.values[at];
    const auto upper =
        static_cast<std::uint16_t>((rest & 0x80U) << 8 | exponent << 7 | (rest & 0x7fU));
    made.values[at] = Result::make(Code::join(upper, lower.values[at]));
  }
  return made;
}

/// Decodes a tile of a coded chunk.
///
/// @param count   Elements of the tile.
/// @param target  Of its first element.
/// @return Whether its codes have the escapes and literals that it says.
template <class Code, class Result>
TP_HOST_DEVICE_RUN bool decode_coded_tile(const CodedTile& tile, std::uint64_t count,
                                          typename Result::Stored* target) {
  const std::uint64_t run_count =
      (count + kGroupElements - 1) / kGroupElements * (kGroupElements / kRunElements);
  std::uint32_t escapes_before = 0;
  std::uint32_t literals_before = 0;
  TP_NO_UNROLL
  for (std::uint64_t first = 0; first < run_count; first += kWarpLanes) {
    PerLane<std::uint32_t> codes;
    PerLane<std::uint32_t> escapes;
    PerLane<std::uint32_t> literals;
    for_each_lane([&](unsigned lane) {
      const std::uint64_t run = first + lane;
      codes[lane] = run < run_count ? load_16_bits(tile.codes + 2 * run) : 0;
      escapes[lane] = count_bits(codes[lane] & codes[lane] >> 1 & 0x5555U);
    });
    const std::uint32_t escape_count = sum_before(escapes);
    for_each_lane([&](unsigned lane) {
      std::uint32_t escape = escapes_before + escapes[lane];
      literals[lane] = 0;
      for (unsigned at = 0; at < kRunElements; ++at) {
        if ((codes[lane] >> 2 * at & 3U) == kEscapeCode) {
          literals[lane] += tile.second_code(escape++) == kLiteralCode ? 1U : 0U;
        }
      }
    });
    const std::uint32_t literal_count = sum_before(literals);
    for_each_lane([&](unsigned lane) {
      const std::uint64_t run = first + lane;
      if (run * kRunElements < count) {
        store_run(decode_run<Code, Result>(tile, run, codes[lane], escapes_before + escapes[lane],
                                           literals_before + literals[lane]),
                  target + run * kRunElements, count - run * kRunElements);
      }
    });
    escapes_before += escape_count;
    literals_before += literal_count;
  }
  return escapes_before == tile.escape_count && literals_before == tile.literal_count;
}

/// Copies a tile of a chunk that is not coded.
template <class Code, class Result>
TP_HOST_DEVICE_RUN void copy_raw_tile(const std::uint8_t* elements, std::uint64_t count,
                                      typename Result::Stored* target) {
  using Bits = typename Code::Bits;
  for_each_lane([&](unsigned lane) {
    TP_NO_UNROLL
    for (std::uint64_t run = lane; run * kRunElements < count; run += kWarpLanes) {
      const std::uint64_t left_count = count - run * kRunElements;
      const auto* const from = reinterpret_cast<const Bits*>(elements) + run * kRunElements;
      ElementRun<typename Result::Stored> made = {};
      for (std::uint64_t at = 0; at < kRunElements && at < left_count; ++at) {
        made.values[at] = Result::make(from[at]);
      }
      store_run(made, target + run * kRunElements, left_count);
    }
  });
}

TP_HOST_DEVICE_RUN void say_damaged(std::uint32_t* damaged) {
#if defined(__CUDA_ARCH__)
  *const_cast<volatile std::uint32_t*>(damaged) = 1;
#else
  std::atomic_ref(*damaged).store(1, std::memory_order_relaxed);
#endif
}

/// Decodes the tiles first, first + stride … of a tensor: what one warp does.
template <class Code, class Target>
TP_HOST_DEVICE_RUN void decode_tiles(const DecodeArguments& arguments, std::uint64_t first,
                                     std::uint64_t stride) {
  using Result = Decoded<Code, Target>;
  auto* const target = static_cast<typename Result::Stored*>(arguments.target);
  TP_NO_UNROLL
  for (std::uint64_t at = first; at * kTileElements < arguments.element_count; at += stride) {
    const std::uint64_t chunk_begin = at / kWarpLanes * kChunkElements;
    const std::uint64_t left_count = arguments.element_count - chunk_begin;
    const std::uint64_t chunk_count = left_count < kChunkElements ? left_count : kChunkElements;
    const auto tile = static_cast<unsigned>(at % kWarpLanes);
    const std::uint64_t begin = tile * kTileElements;
    const std::uint64_t count =
        chunk_count - begin < kTileElements ? chunk_count - begin : kTileElements;
    const std::uint8_t* const chunk =
        arguments.coded + arguments.chunk_begins[at / kWarpLanes] * kChunkUnitBytes;
    if (chunk[kFormOffset] == 0) {
      copy_raw_tile<Code, Result>(chunk + kRawChunkOffset + begin * sizeof(typename Code::Bits),
                                  count, target + chunk_begin + begin);
    } else if (!decode_coded_tile<Code, Result>(find_tile<Code>(chunk, chunk_count, tile), count,
                                                target + chunk_begin + begin)) {
      say_damaged(arguments.damaged);
    }
  }
}

// Every decoder: X(name of the kernel, Code, Target).
#define TP_DECODE_KERNELS(X)                 \
  X(tp_decode_bf16_bf16, Bf16Code, Verbatim) \
  X(tp_decode_bf16_f16, Bf16Code, F16Target) \
  X(tp_decode_bf16_f32, Bf16Code, F32Target) \
  X(tp_decode_f32_bf16, F32Code, Bf16Target) \
  X(tp_decode_f32_f16, F32Code, F16Target)   \
  X(tp_decode_f32_f32, F32Code, Verbatim)

}  // namespace trash_panda::runtime::cuda
