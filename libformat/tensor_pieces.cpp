#include "tensor_pieces.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "chunk_pipeline.h"
#include "tensor_stream.h"

namespace trash_panda::format {

namespace {

constexpr std::size_t kPieceBufferCount = 4;

std::vector<TensorPiece> pieces_of(const Manifest& manifest, std::span<const TensorPlace> places) {
  std::vector<TensorPiece> pieces;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::uint64_t end_bytes =
        manifest.extents[places[i].extent_index].tensors[places[i].tensor_index].size_bytes;
    for (std::uint64_t at = 0; at < end_bytes; at += TensorStream::kPieceBytes) {
      const std::uint64_t size_bytes = std::min(TensorStream::kPieceBytes, end_bytes - at);
      pieces.push_back({.place_index = i,
                        .offset_bytes = at,
                        .size_bytes = size_bytes,
                        .is_last = size_bytes == end_bytes - at});
    }
  }
  return pieces;
}

/// The reading side of the loop.
class PieceReader {
 public:
  PieceReader(const std::filesystem::path& pack, const Manifest& manifest,
              std::span<const TensorPlace> places)
      : pack_(pack), manifest_(manifest), places_(places) {}

  Result<std::span<const std::byte>> read(const TensorPiece& piece, std::span<std::byte> buffer) {
    const auto [extent_index, tensor_index] = places_[piece.place_index];
    const PackedExtent& extent = manifest_.extents[extent_index];
    const PackedTensor& tensor = extent.tensors[tensor_index];
    Result<std::span<const std::byte>> bytes = read_next(piece, extent, tensor, buffer);
    if (!bytes) {
      return std::unexpected(
          std::move(bytes).error().with_context(fmt::format("\"{}\"", printable(tensor.name))));
    }
    return bytes;
  }

 private:
  Result<std::span<const std::byte>> read_next(const TensorPiece& piece, const PackedExtent& extent,
                                               const PackedTensor& tensor,
                                               std::span<std::byte> buffer) {
    if (piece.offset_bytes == 0 && stream_) {
      TP_RETURN_IF_ERROR(stream_->restart(pack_, manifest_, extent, tensor));
    } else if (piece.offset_bytes == 0) {
      TP_ASSIGN_OR_RETURN(stream_, TensorStream::open(pack_, manifest_, extent, tensor));
    }
    return stream_->next(piece.size_bytes, buffer);
  }

  const std::filesystem::path& pack_;
  const Manifest& manifest_;
  std::span<const TensorPlace> places_;
  std::optional<TensorStream> stream_;
};

}  // namespace

Result<void> for_each_piece(const std::filesystem::path& pack, const Manifest& manifest,
                            std::span<const TensorPlace> places, StopFlag stop,
                            const PieceUse& use) {
  const std::vector<TensorPiece> pieces = pieces_of(manifest, places);
  PieceReader reader(pack, manifest, places);
  // By place. Written by the reading thread before it hands on the piece, which then is empty.
  std::vector<std::optional<Error>> damages(places.size());
  const auto fill = [&](std::size_t i,
                        std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    std::optional<Error>& damage = damages[pieces[i].place_index];
    if (damage) {
      return std::span<const std::byte>();
    }
    Result<std::span<const std::byte>> bytes = reader.read(pieces[i], buffer);
    if (bytes || bytes.error().code() != ErrorCode::kCorrupt) {
      return bytes;
    }
    damage = std::move(bytes).error();
    return std::span<const std::byte>();
  };
  std::optional<std::size_t> damaged_place;
  const auto use_piece = [&](std::size_t i, std::span<const std::byte> bytes) -> Result<void> {
    const TensorPiece& piece = pieces[i];
    if (!bytes.empty()) {
      return use(piece, bytes);
    }
    if (std::exchange(damaged_place, piece.place_index) == piece.place_index) {
      return {};  // It was told so.
    }
    return use(piece, std::unexpected(*damages[piece.place_index]));
  };
  return run_chunk_pipeline(pieces.size(),
                            {.buffer_bytes = TensorStream::kPieceBytes + kBulkReadSlackBytes,
                             .buffer_count = kPieceBufferCount,
                             .thread_count = 1,
                             .stop = stop},
                            fill, {use_piece});
}

}  // namespace trash_panda::format
