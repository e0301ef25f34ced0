#pragma once

#include <cstddef>
#include <cstdint>

namespace trash_panda::runtime {

/// Bytes of an extent that lie together in one file. An extent of a pack is one piece.
struct ExtentPiece {
  std::size_t file_index;      ///< Into ShardFiles.
  std::uint64_t offset_bytes;  ///< From the start of the file.
  std::uint64_t size_bytes;
  std::uint64_t target_offset_bytes;  ///< From the start of the extent's memory.
};

}  // namespace trash_panda::runtime
