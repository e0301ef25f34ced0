#pragma once

#include <cstdint>

#include "trash_panda/base/error.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/pack_writer.h"

namespace trash_panda::format {

/// Gives tensors of an extent codes, if they are large enough that a chunk's head does not matter,
/// and room for the longest codes that there may be: sizes are known once they are made. The
/// extent's codec is set accordingly.
///
/// Rooms are a little too long, so that there is padding behind each of them: the header of a shard
/// that is laid out so is never shorter than that of what is written in the end.
///
/// @param extent  Laid out raw.
/// @retval kCorrupt  It would take more than 2^64 bytes.
Result<void> make_room_for_codes(PackedExtent& extent, const ExtentLayout& layout,
                                 std::uint64_t page_bytes);

/// Checks where the tensors of an extent lie, as far as its codec makes a difference.
/// @retval kCorrupt  The message names tensor and sizes.
Result<void> check_stored_places(const PackedExtent& extent);

}  // namespace trash_panda::format
