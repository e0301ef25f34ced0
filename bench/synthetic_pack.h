#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/tier.h"

namespace trash_panda::bench {

/// A model of bf16 blocks: four weights of equal size each, normally distributed as trained weights
/// are, with random low bits.
struct SyntheticModel {
  std::uint64_t size_bytes;         ///< Of all weights, rounded down to whole rows.
  std::vector<format::Tier> tiers;  ///< One a block.
  bool is_coded = false;            ///< In the exponent code.
};

struct SyntheticPack {
  std::filesystem::path pack;
  std::filesystem::path source;  ///< What it was packed from: a safetensors file.
  std::uint64_t source_data_offset_bytes;
  std::uint64_t block_bytes;  ///< Of each block in the source, one after the other.
};

/// Writes such a model's checkpoint and pack into `folder`.
Result<SyntheticPack> write_synthetic_pack(const std::filesystem::path& folder,
                                           const SyntheticModel& model);

}  // namespace trash_panda::bench
