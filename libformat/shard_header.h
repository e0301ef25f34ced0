#pragma once

#include <cstdint>
#include <string>

#include "trash_panda/format/manifest.h"

namespace trash_panda::format {

/// Makes the first bytes of a shard: length field and safetensors header, filled with spaces so
/// that the data start on a page.
///
/// Lists the tensors of the shard's extents, coded ones as U8 under a name of their own, and pad
/// tensors over every byte that belongs to none. Never shorter than `header_bytes` of the shard.
/// Uses each extent's place relative to the shard's `header_bytes`, which may still be 0: the
/// header's own length does not matter to what it says.
///
/// @retval kUnsupported  More tensors than a header of kHeaderBytesMax holds.
Result<std::string> make_shard_header(const Manifest& manifest, std::uint32_t shard_index);

}  // namespace trash_panda::format
