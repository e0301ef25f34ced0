#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trash_panda/format/checksum.h"
#include "trash_panda/format/manifest.h"

#include "extent_source.h"

namespace trash_panda::format {

/// Says where chunks come to lie, as they come by in order, and what the checksums of their extents
/// are. Both are entered in the manifest.
class ExtentPlacer {
 public:
  /// Zeros around the bytes of a chunk.
  struct Padding {
    std::uint64_t before_bytes = 0;
    std::uint64_t behind_bytes = 0;
  };

  /// @param manifest      Outlives this.
  /// @param offset_bytes  Of the first extent, in its shard.
  ExtentPlacer(Manifest& manifest, std::uint64_t offset_bytes, std::size_t chunk_count)
      : manifest_(manifest), extent_offset_bytes_(offset_bytes), paddings_(chunk_count) {}

  /// @param bytes  Of the chunk, as they are stored.
  void place(std::size_t chunk_index, const PackChunk& chunk, std::span<const std::byte> bytes);

  /// Of a chunk that was placed.
  [[nodiscard]] const Padding& padding(std::size_t chunk_index) const {
    return paddings_[chunk_index];
  }

 private:
  void add_zeros(std::uint64_t size_bytes);

  Manifest& manifest_;
  std::uint64_t extent_offset_bytes_;  ///< Of the extent that is being placed, in its shard.
  std::uint64_t position_ = 0;         ///< In that extent.
  Checksum checksum_;
  std::vector<Padding> paddings_;
};

}  // namespace trash_panda::format
