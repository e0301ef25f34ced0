#include "trash_panda/plan/kv_cache.h"

#include <algorithm>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"

namespace trash_panda::plan {
namespace {

/// Far more than any machine has: what a plan adds to it stays in range.
constexpr std::uint64_t kCacheBytesMax = std::uint64_t{1} << 50U;

}  // namespace

std::optional<std::uint64_t> kv_dtype_bytes(std::string_view name) {
  if (name == "bf16" || name == "fp16") {
    return 2;
  }
  if (name == "fp32") {
    return 4;
  }
  return name == "fp8" ? std::optional<std::uint64_t>(1) : std::nullopt;
}

Result<std::uint64_t> kv_cache_bytes(std::span<const LayerCache> layers,
                                     const ContextRequest& request) {
  const std::optional<std::uint64_t> element_bytes = kv_dtype_bytes(request.kv_dtype);
  if (!element_bytes) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("'{}' is no dtype of KV caches: bf16, fp16, fp32, fp8",
                                             printable(request.kv_dtype))));
  }
  if (request.context_tokens == 0 || request.batch_size == 0) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("a KV cache of {} sequences of {} tokens is none",
                                             request.batch_size, request.context_tokens)));
  }
  std::uint64_t total_bytes = 0;
  for (const LayerCache& layer : layers) {
    std::uint64_t layer_bytes = *element_bytes;
    const std::uint64_t tokens =
        std::min(request.context_tokens, layer.window_tokens.value_or(request.context_tokens));
    for (const std::uint64_t factor : {layer.elements_per_token, tokens, request.batch_size}) {
      if (factor > 0 && layer_bytes > kCacheBytesMax / factor) {
        layer_bytes = kCacheBytesMax + 1;
        break;
      }
      layer_bytes *= factor;
    }
    total_bytes += layer_bytes;
    if (total_bytes > kCacheBytesMax) {
      return std::unexpected(Error(
          ErrorCode::kUsage,
          fmt::format("the KV cache of {} sequences of {} tokens is more than any machine has",
                      request.batch_size, request.context_tokens)));
    }
  }
  return total_bytes;
}

}  // namespace trash_panda::plan
