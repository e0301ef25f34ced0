#pragma once

#include <cstdint>
#include <filesystem>

#include "trash_panda/base/error.h"

namespace trash_panda::bench {

struct SyntheticModel {
  std::uint64_t size_bytes = 0;  ///< Of all blocks.
  std::uint64_t block_count = 0;
};

/// Writes a pack of equal bf16 blocks of noise, all in the disk tier, in `folder`, and gives back
/// its path. The checkpoint that it was made from is removed.
Result<std::filesystem::path> write_synthetic_pack(const std::filesystem::path& folder,
                                                   const SyntheticModel& model);

}  // namespace trash_panda::bench
