#include "tensor_pieces.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "bulk_reader.h"
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

/// Pieces that are read at once: one, or several whole tensors that are stored raw and close to
/// each other, since a request takes longer than what a small one has to be read for.
struct PieceRun {
  std::span<const TensorPiece> pieces;
  // Of several: from the start of the shard.
  std::uint64_t offset_bytes;
  std::uint64_t end_bytes;
};

/// Bytes between tensors of a run, which are read for nothing.
constexpr std::uint64_t kRunGapBytesMax = 16'384;

const PackedExtent& extent_of(const Manifest& manifest, const TensorPlace& place) {
  return manifest.extents[place.extent_index];
}

std::uint64_t stored_at(const Manifest& manifest, const TensorPlace& place) {
  const PackedExtent& extent = extent_of(manifest, place);
  return extent.offset_bytes + extent.tensors[place.tensor_index].stored_offset_bytes;
}

std::vector<PieceRun> runs_of(const Manifest& manifest, std::span<const TensorPlace> places,
                              std::span<const TensorPiece> pieces) {
  const auto is_whole_raw = [&](const TensorPiece& piece) {
    const TensorPlace& place = places[piece.place_index];
    return piece.offset_bytes == 0 && piece.is_last &&
           extent_of(manifest, place).tensors[place.tensor_index].coding == TensorCoding::kRaw;
  };
  std::vector<PieceRun> runs;
  bool can_grow = false;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const TensorPlace& place = places[pieces[i].place_index];
    const std::uint64_t at_bytes = stored_at(manifest, place) + pieces[i].offset_bytes;
    const std::uint64_t end_bytes = at_bytes + pieces[i].size_bytes;
    const bool is_whole = is_whole_raw(pieces[i]);
    if (is_whole && can_grow &&
        extent_of(manifest, places[pieces[i - 1].place_index]).shard_index ==
            extent_of(manifest, place).shard_index &&
        at_bytes >= runs.back().end_bytes && at_bytes - runs.back().end_bytes <= kRunGapBytesMax &&
        end_bytes - runs.back().offset_bytes <= TensorStream::kPieceBytes) {
      PieceRun& run = runs.back();
      run.pieces = {run.pieces.data(), run.pieces.size() + 1};
      run.end_bytes = end_bytes;
    } else {
      runs.push_back(
          {.pieces = pieces.subspan(i, 1), .offset_bytes = at_bytes, .end_bytes = end_bytes});
    }
    can_grow = is_whole;
  }
  return runs;
}

/// The reading side of the loop.
class PieceReader {
 public:
  PieceReader(const std::filesystem::path& pack, const Manifest& manifest,
              std::span<const TensorPlace> places)
      : pack_(pack), manifest_(manifest), places_(places) {}

  /// @return The bytes of the piece; of several, all from the first to the last.
  Result<std::span<const std::byte>> read(const PieceRun& run, std::span<std::byte> buffer) {
    const TensorPiece& piece = run.pieces.front();
    const auto [extent_index, tensor_index] = places_[piece.place_index];
    const PackedExtent& extent = manifest_.extents[extent_index];
    if (run.pieces.size() > 1) {
      return read_several(run, extent.shard_index, buffer);
    }
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

  Result<std::span<const std::byte>> read_several(const PieceRun& run, std::uint32_t shard_index,
                                                  std::span<std::byte> buffer) {
    if (!shard_ || shard_index_ != shard_index) {
      TP_ASSIGN_OR_RETURN(shard_, BulkReader::open(pack_ / manifest_.shards[shard_index].name));
      shard_index_ = shard_index;
    }
    return shard_->read(run.offset_bytes, run.end_bytes - run.offset_bytes, buffer);
  }

  const std::filesystem::path& pack_;
  const Manifest& manifest_;
  std::span<const TensorPlace> places_;
  std::optional<TensorStream> stream_;
  std::optional<BulkReader> shard_;  ///< That several were read of.
  std::uint32_t shard_index_ = 0;
};

}  // namespace

Result<void> for_each_piece(const std::filesystem::path& pack, const Manifest& manifest,
                            std::span<const TensorPlace> places, StopFlag stop,
                            const PieceUse& use) {
  const std::vector<TensorPiece> pieces = pieces_of(manifest, places);
  const std::vector<PieceRun> runs = runs_of(manifest, places, pieces);
  PieceReader reader(pack, manifest, places);
  // By place. Written by the reading thread before it hands on the run, which then is empty.
  std::vector<std::optional<Error>> damages(places.size());
  const auto fill = [&](std::size_t i,
                        std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    const PieceRun& run = runs[i];
    if (damages[run.pieces.front().place_index]) {
      return std::span<const std::byte>();
    }
    Result<std::span<const std::byte>> bytes = reader.read(run, buffer);
    if (bytes || bytes.error().code() != ErrorCode::kCorrupt) {
      return bytes;
    }
    for (const TensorPiece& piece : run.pieces) {
      damages[piece.place_index] = bytes.error();
    }
    return std::span<const std::byte>();
  };
  std::optional<std::size_t> damaged_place;
  const auto use_damaged = [&](const TensorPiece& piece) -> Result<void> {
    if (std::exchange(damaged_place, piece.place_index) == piece.place_index) {
      return {};  // It was told so.
    }
    return use(piece, std::unexpected(*damages[piece.place_index]));
  };
  const auto use_run = [&](std::size_t i, std::span<const std::byte> bytes) -> Result<void> {
    const PieceRun& run = runs[i];
    if (!bytes.empty() && run.pieces.size() == 1) {
      return use(run.pieces.front(), bytes);
    }
    for (const TensorPiece& piece : run.pieces) {
      const std::uint64_t at_bytes = stored_at(manifest, places[piece.place_index]);
      TP_RETURN_IF_ERROR(
          bytes.empty() ? use_damaged(piece)
                        : use(piece, bytes.subspan(at_bytes - run.offset_bytes, piece.size_bytes)));
    }
    return {};
  };
  return run_chunk_pipeline(runs.size(),
                            {.buffer_bytes = TensorStream::kPieceBytes + kBulkReadSlackBytes,
                             .buffer_count = kPieceBufferCount,
                             .thread_count = 1,
                             .stop = stop},
                            fill, {use_run});
}

}  // namespace trash_panda::format
