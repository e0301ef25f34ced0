#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/error.h"
#include "trash_panda/format/dtype.h"
#include "trash_panda/format/manifest.h"

namespace trash_panda::runtime {

/// One piece of work of a thread, for throughput(): takes the thread's index, returns the bytes
/// done. Each thread has a region of memory of its own, that it goes through again and again.
using ThreadWork = std::function<std::uint64_t(std::size_t thread_index)>;

/// Reads one byte and writes two, past the caches: what no expansion of fp8 can beat.
///
/// @param to  Twice as long as `from`, at a multiple of 16 bytes.
void copy_twice(std::span<const std::byte> from, std::byte* to);

/// memcpy() from one half of memory to the other.
class CopyWork {
 public:
  /// @param memory_bytes  Of both halves; 0 is not allowed. @retval kFailed  There is none.
  static Result<CopyWork> create(std::uint64_t memory_bytes);
  /// Bytes are those that are copied, counted once. Valid as long as this.
  [[nodiscard]] ThreadWork copy(std::size_t thread_count) const;

 private:
  std::uint64_t half_bytes_ = 0;
  AlignedBuffer source_;
  AlignedBuffer target_;
};

/// F8_E4M3 with a scale for the tensor to BF16, and copies that move the same bytes.
class ExpandWork {
 public:
  /// @param weight_bytes      Of fp8, for each thread at most.
  /// @param memory_bytes_max  Of all, which is three times as much.
  /// @retval kFailed  There is no memory, or it is too little for a piece of work.
  static Result<ExpandWork> create(std::size_t thread_count, std::uint64_t weight_bytes,
                                   std::uint64_t memory_bytes_max);
  /// Bytes of both are those of fp8. Valid as long as this.
  [[nodiscard]] ThreadWork expand() const;
  [[nodiscard]] ThreadWork copy() const;

 private:
  [[nodiscard]] ThreadWork work(
      std::function<void(std::span<const std::byte>, std::byte*)> piece) const;

  std::size_t thread_count_ = 0;
  std::uint64_t share_bytes_ = 0;
  AlignedBuffer payload_;
  AlignedBuffer expanded_;
};

/// Decodes weights that are distributed as those of models are.
class DecodeWork {
 public:
  /// What is decoded: BF16 of TensorCoding::kExponent, F8_E4M3 of kZstd.
  ///
  /// @param weight_bytes, memory_bytes_max  As for ExpandWork; of decoded bytes, twice as much.
  /// @retval kFailed  There is no memory, or it is too little for a chunk.
  static Result<DecodeWork> create(format::TensorCoding coding, std::size_t thread_count,
                                   std::uint64_t weight_bytes, std::uint64_t memory_bytes_max);
  /// Bytes are decoded ones. Valid as long as this.
  [[nodiscard]] ThreadWork decode() const;

 private:
  format::TensorCoding coding_ = format::TensorCoding::kExponent;
  format::Dtype dtype_ = format::Dtype::kBf16;
  std::size_t thread_count_ = 0;
  std::uint64_t chunk_count_ = 0;  ///< Of each thread.
  std::uint64_t raw_bytes_ = 0;    ///< Of a chunk.
  std::uint64_t coded_bytes_ = 0;
  AlignedBuffer coded_;
  AlignedBuffer raw_;
};

}  // namespace trash_panda::runtime
