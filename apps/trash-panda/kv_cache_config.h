#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/kv_cache.h"

namespace trash_panda::cli {

/// What a model's attention keeps of each token.
struct KvCacheConfig {
  std::vector<plan::LayerCache> layers;
  std::vector<std::string> warnings;  ///< What was assumed, one line each.
};

/// Reads layers, heads and their size from the text of a config.json: grouped heads, latent
/// attention (DeepSeek), sliding windows where it says for which layers.
///
/// @param config          Of transformers; composite models say it in a part of their own.
/// @param context_tokens  That are asked for, to compare with what the model was made for.
/// @retval kUnsupported  It does not tell, or the model keeps something else than such a cache; the
///                       message names the key.
Result<KvCacheConfig> read_kv_cache_config(std::string_view config, std::uint64_t context_tokens);

}  // namespace trash_panda::cli
