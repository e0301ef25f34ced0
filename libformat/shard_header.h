#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

/// Checks that a shard's header, whoever wrote it, lists what the manifest has in it: other
/// programs go by the header alone.
///
/// @param text  The header without its length field.
/// @retval kCorrupt  It is no safetensors header, or lacks a tensor or has another one, or says of
///                   one another dtype, shape or place. The message names the first.
Result<void> check_shard_header(const Manifest& manifest, std::uint32_t shard_index,
                                std::string_view text);

}  // namespace trash_panda::format
