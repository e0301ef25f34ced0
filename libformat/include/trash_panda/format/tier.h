#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trash_panda::format {

/// Where weights wait between uses.
enum class Tier : std::uint8_t {
  kBase,  ///< Tensors outside blocks: loaded once, resident on the compute device.
  kGpu,   ///< Blocks resident in VRAM.
  kRam,   ///< Blocks that wait in RAM.
  kDisk,  ///< Blocks read every pass.
};

/// "base", "gpu", "ram", "disk".
[[nodiscard]] std::string_view tier_name(Tier tier);
[[nodiscard]] std::optional<Tier> parse_tier(std::string_view name);

}  // namespace trash_panda::format
