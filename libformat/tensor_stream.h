#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/error.h"
#include "trash_panda/format/manifest.h"

#include "bulk_reader.h"

namespace trash_panda::format {

/// Reads one tensor of a pack front to back, decoded, in memory that does not grow with it.
class TensorStream {
 public:
  /// What read() is best asked for: whole chunks of the exponent code, of every dtype.
  static constexpr std::uint64_t kPieceBytes = 4'194'304;

  /// @param tensor  Of `extent`, of `manifest`, which outlive this.
  static Result<TensorStream> open(const std::filesystem::path& pack, const Manifest& manifest,
                                   const PackedExtent& extent, const PackedTensor& tensor);

  /// Begins another tensor of the same pack, with the same memory, and the same file if it is in
  /// the same shard: what opening costs is more than what small tensors take to read.
  Result<void> restart(const std::filesystem::path& pack, const Manifest& manifest,
                       const PackedExtent& extent, const PackedTensor& tensor);

  /// Reads the next piece.
  ///
  /// @param size_bytes  kPieceBytes, or what is left if that is less.
  /// @param buffer      Page-aligned, at least kPieceBytes + kBulkReadSlackBytes.
  /// @return Where in `buffer` the bytes lie.
  /// @retval kCorrupt  The code is damaged, or the shard too short.
  Result<std::span<const std::byte>> next(std::uint64_t size_bytes, std::span<std::byte> buffer);

 private:
  TensorStream(BulkReader reader, std::uint32_t shard_index)
      : reader_(std::move(reader)), shard_index_(shard_index) {}

  Result<std::span<const std::byte>> decode(std::uint64_t size_bytes, std::span<std::byte> buffer);
  Result<void> refill(std::uint64_t needed_bytes);

  BulkReader reader_;
  std::uint32_t shard_index_;  ///< That is read.
  const PackedTensor* tensor_ = nullptr;
  std::uint64_t at_bytes_ = 0;        ///< In the shard: behind what was read.
  std::uint64_t end_bytes_ = 0;       ///< Of the stored tensor.
  std::uint64_t raw_left_bytes_ = 0;  ///< Of a coded tensor: not decoded yet.
  // Of coded tensors: what was read and not decoded yet.
  AlignedBuffer window_;
  std::span<const std::byte> coded_;
};

}  // namespace trash_panda::format
