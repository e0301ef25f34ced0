#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/plan/plan.h"

#include "extent_piece.h"

namespace trash_panda::runtime {

/// A checkpoint of safetensors files, seen as the pack that it would make: the same extents, whose
/// bytes are read from where the checkpoint has them.
///
/// Runs of tensors are read in whole pages, so a tensor lies in its extent's memory as far from a
/// page's start as in its file, on no other alignment. The end of a file that is no whole page is a
/// piece of its own, read buffered.
struct CheckpointView {
  /// Offsets of tensors are those in memory. Extents have no checksum, and shards stand for the
  /// files: each twice, the second one to be read buffered.
  format::Manifest manifest;
  std::vector<std::filesystem::path> files;      ///< One a shard.
  std::vector<std::vector<ExtentPiece>> pieces;  ///< One list an extent of the manifest.
};

/// Pure but for reading headers.
///
/// @param plan  Of the checkpoint; its tiers and blocks are used.
/// @retval kUnsupported  Only a pack can hold it: a torch or GGUF file, views with strides, scales
///                       that have to be put into another form. The hint says to repack.
/// @retval kStale        The plan is for another checkpoint.
/// @retval kMissing, kCorrupt  As Checkpoint::open() and find_weights().
Result<CheckpointView> view_checkpoint(const std::filesystem::path& checkpoint,
                                       const plan::Plan& plan);

}  // namespace trash_panda::runtime
