#include "trash_panda/plan/kv_cache.h"

#include <vector>

#include <gtest/gtest.h>

namespace trash_panda::plan {
namespace {

TEST(KvCacheBytes, MultipliesLayersTokensAndSequences) {
  const std::vector<LayerCache> layers(32,
                                       {.elements_per_token = 2 * 8 * 128, .window_tokens = {}});
  // Llama 3.1 8B: 128 KiB a token.
  EXPECT_EQ(kv_cache_bytes(layers, {1, 1, "bf16"}).value(), 131072U);
  EXPECT_EQ(kv_cache_bytes(layers, {8192, 4, "fp16"}).value(), 131072ULL * 8192 * 4);
  EXPECT_EQ(kv_cache_bytes(layers, {8192, 4, "fp8"}).value(), 65536ULL * 8192 * 4);
  EXPECT_EQ(kv_cache_bytes(layers, {1, 1, "fp32"}).value(), 262144U);
  EXPECT_EQ(kv_cache_bytes({}, {1, 1, "bf16"}).value(), 0U);
}

TEST(KvCacheBytes, KeepsNoMoreThanAWindow) {
  const std::vector<LayerCache> layers = {{.elements_per_token = 10, .window_tokens = 100},
                                          {.elements_per_token = 10, .window_tokens = {}}};
  EXPECT_EQ(kv_cache_bytes(layers, {100, 1, "fp8"}).value(), 2000U);
  EXPECT_EQ(kv_cache_bytes(layers, {101, 1, "fp8"}).value(), 1000U + 1010U);
}

TEST(KvCacheBytes, RefusesWhatIsNoCache) {
  const std::vector<LayerCache> layers = {{.elements_per_token = 1ULL << 40, .window_tokens = {}}};
  EXPECT_EQ(kv_cache_bytes(layers, {1024, 1, "fp8"}).value(), 1ULL << 50);
  for (const ContextRequest& wrong :
       {ContextRequest{1025, 1, "fp8"}, ContextRequest{1ULL << 63, 1ULL << 63, "bf16"},
        ContextRequest{0, 1, "bf16"}, ContextRequest{1, 0, "bf16"}, ContextRequest{1, 1, "int4"}}) {
    const auto bytes = kv_cache_bytes(layers, wrong);
    ASSERT_FALSE(bytes);
    EXPECT_EQ(bytes.error().code(), ErrorCode::kUsage);
  }
}

}  // namespace
}  // namespace trash_panda::plan
