#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "trash_panda/base/error.h"
#include "trash_panda/base/progress.h"
#include "trash_panda/format/manifest.h"

namespace trash_panda::format {

/// A tensor of a manifest.
struct TensorPlace {
  std::size_t extent_index;
  std::size_t tensor_index;  ///< In that extent.
};

/// A run of a tensor's raw bytes.
struct TensorPiece {
  std::size_t place_index;     ///< Into the places that were asked for.
  std::uint64_t offset_bytes;  ///< From the start of the tensor.
  std::uint64_t size_bytes;
  bool is_last;  ///< Of the tensor.
};

/// Works on a piece.
/// @param bytes  Of the piece, decoded; or why they can't be (kCorrupt): then no other piece of
/// this
///               tensor follows, and returning the error is up to this function.
using PieceUse =
    std::function<Result<void>(const TensorPiece& piece, Result<std::span<const std::byte>> bytes)>;

/// Reads tensors of a pack one after the other, decoded, on a thread of its own, while `use` works
/// on the calling one: with one file and a few buffers for all of them; small ones that lie one
/// behind the other at once. Tensors without bytes have no piece.
///
/// @retval kInterrupted  `stop` was set.
/// @return Otherwise the first error of `use`, or of the system.
Result<void> for_each_piece(const std::filesystem::path& pack, const Manifest& manifest,
                            std::span<const TensorPlace> places, StopFlag stop,
                            const PieceUse& use);

}  // namespace trash_panda::format
