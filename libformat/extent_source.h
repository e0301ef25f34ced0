#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trash_panda/format/pack_writer.h"

namespace trash_panda::format {

/// A run of an extent's bytes that is made and written at a time.
struct PackChunk {
  static constexpr std::uint64_t kBytesMax = 8'388'608;

  std::size_t extent_index;   ///< Into Manifest::extents.
  std::uint64_t begin_bytes;  ///< From the start of the extent.
  std::uint64_t end_bytes;
};

/// Makes the bytes of a pack's extents from the checkpoint: payloads as they are, scales in their
/// canonical form, zeros between. Thread-safe.
class ExtentSource {
 public:
  /// @param manifest  As lay_out_pack() made it from the other three; all outlive this.
  ExtentSource(const Checkpoint& checkpoint, const WeightTable& weights, const PackLayout& layout,
               const Manifest& manifest);

  /// Cuts the extents of a shard into chunks, in the order in which they are written: large
  /// tensors get chunks of their own, which are read past the page cache without another copy.
  [[nodiscard]] std::vector<PackChunk> chunks(std::uint32_t shard_index) const;

  /// Reads or makes a chunk's bytes.
  ///
  /// @param buffer  Page-aligned, at least PackChunk::kBytesMax + kBulkReadSlackBytes.
  /// @return Where in `buffer` the bytes lie.
  Result<std::span<const std::byte>> fill(const PackChunk& chunk,
                                          std::span<std::byte> buffer) const;

 private:
  /// Where a packed tensor comes from.
  struct Origin {
    std::size_t weight_index;
    bool is_scale;
  };

  [[nodiscard]] bool is_read_apart(std::size_t extent_index, std::size_t tensor_index) const;
  [[nodiscard]] std::size_t first_tensor(const PackChunk& chunk) const;
  Result<void> read_part(std::size_t extent_index, std::size_t tensor_index,
                         std::uint64_t offset_bytes, std::span<std::byte> target) const;

  const Checkpoint& checkpoint_;
  const WeightTable& weights_;
  const Manifest& manifest_;
  std::vector<std::vector<Origin>> origins_;  ///< By extent, then by tensor.
};

}  // namespace trash_panda::format
