#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"

namespace trash_panda::format {

/// Longest index that is read, in bytes: more than twice the longest header, whose names it lists.
inline constexpr std::uint64_t kIndexBytesMax = 256'000'000;

/// One line of a weight_map.
struct IndexEntry {
  std::string tensor;
  std::uint32_t shard_index;  ///< Into IndexFile::shards.
};

/// What an `*.index.json` says.
struct IndexFile {
  std::vector<IndexEntry> entries;   ///< In the order of the file; no name is there twice.
  std::vector<std::string> shards;   ///< As spelled, sorted; each one is listed by some tensor.
  std::optional<double> total_size;  ///< metadata.total_size, where there is one.
};

/// Parses an index. Shard names are checked to stay inside the folder.
///
/// @retval kCorrupt      Reasons: index (no JSON, no weight_map, a value that is no string),
///                       index_duplicate, unsafe_path.
/// @retval kUnsupported  A shard is of another format by its name (reason unsupported_format).
Result<IndexFile> parse_index(std::string_view text);

}  // namespace trash_panda::format
