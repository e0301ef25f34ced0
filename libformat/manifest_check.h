#pragma once

#include <string_view>

#include "trash_panda/format/manifest.h"

namespace trash_panda::format {

/// Smallest and largest `page_bytes`: the page of common machines, and eight huge pages.
inline constexpr std::uint64_t kPageBytesMin = 4096;
inline constexpr std::uint64_t kPageBytesMax = 16'777'216;

/// A power of two within the limits.
[[nodiscard]] bool is_page_size(std::uint64_t page_bytes);

/// Checks all that must hold between the parts of a manifest, checksums aside; see
/// parse_manifest().
///
/// @param where  Name of the file, for messages.
/// @retval kCorrupt  The message names extent and tensor, with sizes.
Result<void> check_manifest(const Manifest& manifest, std::string_view where);

/// Name of the last member of a manifest: the checksum of all bytes before the line it stands on.
inline constexpr std::string_view kManifestChecksumKey = "manifest_xxh3_128";

/// Puts the closing line with the checksum after the text of a manifest.
/// @param text  All that comes before, ending with a line break.
[[nodiscard]] std::string seal_manifest(std::string text);

}  // namespace trash_panda::format
