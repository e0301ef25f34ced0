#pragma once

#include <filesystem>

#include "trash_panda/base/error.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/plan/plan.h"

namespace trash_panda::runtime {

/// Says what Streamer::open_checkpoint() will stream, as the manifest of a pack does: extents,
/// their tensors and tiers, aliases. There are no checksums, and shards are the checkpoint's files.
///
/// @param plan  Of the checkpoint.
/// @retval kUnsupported, kStale, kMissing, kCorrupt  As Streamer::open_checkpoint().
Result<format::Manifest> checkpoint_manifest(const std::filesystem::path& checkpoint,
                                             const plan::Plan& plan);

}  // namespace trash_panda::runtime
