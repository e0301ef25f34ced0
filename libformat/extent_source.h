#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trash_panda/format/pack_writer.h"

#include "bulk_reader.h"

namespace trash_panda::format {

/// A run of a raw extent's bytes that is made and written at a time.
///
/// In the stored extent chunks follow one another in *spans*: one coded tensor each, or tensors
/// that lie there as in the raw extent, gaps included.
struct PackChunk {
  /// Several requests of this size in flight keep SATA and NVMe drives busy. Whole chunks of every
  /// code, of every dtype.
  static constexpr std::uint64_t kBytesMax = 4'194'304;
  /// Longest code of a chunk.
  static constexpr std::uint64_t kCodedBytesMax = kBytesMax + 65'536;
  /// Of the buffer that fill() takes: room for the chunk, and for reading a run of the source.
  /// Where a converted tensor is coded, its source is read to where the code will be.
  static constexpr std::uint64_t kBufferBytes = kCodedBytesMax + kBytesMax + kBulkReadSlackBytes;
  static_assert(kCodedBytesMax >= kBytesMax + kBulkReadSlackBytes);

  std::size_t extent_index = 0;   ///< Into Manifest::extents.
  std::uint64_t begin_bytes = 0;  ///< From the start of the raw extent.
  std::uint64_t end_bytes = 0;
  std::size_t first_tensor = 0;  ///< Of the span; of the extent's tensors.
  std::size_t tensor_count = 0;  ///< In the span.
  bool is_coded = false;         ///< The span is one tensor in a code.
  bool begins_span = false;
  bool ends_span = false;
  bool begins_extent = false;
  bool ends_extent = false;
};

/// Makes the bytes of a pack's extents from the checkpoint: payloads as they are or converted,
/// scales in their canonical form, zeros between. Thread-safe.
class ExtentSource {
 public:
  /// @param manifest  As lay_out_pack() made it from the first three; all outlive this.
  /// @param direct    How large tensors are read.
  ExtentSource(const Checkpoint& checkpoint, const WeightTable& weights, const PackLayout& layout,
               const Manifest& manifest, DirectUse direct);

  /// Cuts an extent into chunks; all but the last one of a span have kBytesMax.
  void add_chunks(std::size_t extent_index, std::vector<PackChunk>& chunks) const;

  /// Reads or makes a chunk's bytes, as they are stored.
  ///
  /// @param buffer  Page-aligned, at least PackChunk::kBufferBytes.
  /// @return They are at the start of `buffer`, so page-aligned as well.
  Result<std::span<const std::byte>> fill(const PackChunk& chunk,
                                          std::span<std::byte> buffer) const;

 private:
  /// Where a packed tensor comes from.
  struct Origin {
    std::size_t weight_index;
    bool is_scale;
    const WeightConversion* conversion;  ///< Null: none.
  };

  [[nodiscard]] std::size_t first_tensor(const PackChunk& chunk) const;
  Result<std::span<const std::byte>> encode(const PackChunk& chunk,
                                            std::span<std::byte> buffer) const;
  Result<void> make_part(const Origin& origin, std::uint64_t offset_bytes,
                         std::span<std::byte> target, std::span<std::byte> scratch) const;
  Result<void> convert_part(const Origin& origin, std::uint64_t offset_bytes,
                            std::span<std::byte> target, std::span<std::byte> scratch) const;
  Result<std::span<const std::byte>> read_part(const Origin& origin, std::uint64_t offset_bytes,
                                               std::uint64_t size_bytes,
                                               std::span<std::byte> scratch) const;

  const Checkpoint& checkpoint_;
  const WeightTable& weights_;
  const Manifest& manifest_;
  DirectUse direct_;
  std::vector<std::vector<Origin>> origins_;  ///< By extent, then by tensor.
};

}  // namespace trash_panda::format
