#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/plan_request.h"

namespace trash_panda::plan {

/// What one layer of attention keeps of the tokens before.
struct LayerCache {
  std::uint64_t elements_per_token = 0;        ///< Keys and values, or what they are made from.
  std::optional<std::uint64_t> window_tokens;  ///< Only the last ones are kept; nothing: all.

  bool operator==(const LayerCache&) const = default;
};

/// Bytes of an element of a KV cache; nothing for a name other than "bf16", "fp16", "fp32", "fp8".
[[nodiscard]] std::optional<std::uint64_t> kv_dtype_bytes(std::string_view name);

/// Bytes that the KV cache of all layers takes once the context is full.
///
/// @retval kUsage  No such dtype, no tokens or sequences, or more bytes than any machine has.
Result<std::uint64_t> kv_cache_bytes(std::span<const LayerCache> layers,
                                     const ContextRequest& request);

}  // namespace trash_panda::plan
