#include <string>
#include <vector>

#include "cli_test.h"
#include "kv_cache_config.h"

namespace trash_panda::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::uint64_t> elements(const std::string& config) {
  const Result<cli::KvCacheConfig> cache = cli::read_kv_cache_config(config, 1);
  EXPECT_TRUE(cache) << cache.error().to_string();
  std::vector<std::uint64_t> found;
  for (const plan::LayerCache& layer : cache ? cache->layers : std::vector<plan::LayerCache>()) {
    found.push_back(layer.elements_per_token);
  }
  return found;
}

/// Windows by layer; 0: none.
std::vector<std::uint64_t> windows(const std::string& config) {
  const Result<cli::KvCacheConfig> cache = cli::read_kv_cache_config(config, 1);
  EXPECT_TRUE(cache) << cache.error().to_string();
  std::vector<std::uint64_t> found;
  for (const plan::LayerCache& layer : cache ? cache->layers : std::vector<plan::LayerCache>()) {
    found.push_back(layer.window_tokens.value_or(0));
  }
  return found;
}

TEST(KvCacheConfig, CountsHeads) {
  // As many heads as queries have; grouped; a size of their own; one for all; GPT-2's names.
  EXPECT_THAT(elements(R"({"num_hidden_layers":2,"num_attention_heads":8,"hidden_size":512})"),
              ElementsAre(1024, 1024));
  EXPECT_THAT(elements(R"({"num_hidden_layers":1,"num_attention_heads":32,"hidden_size":4096,
                           "num_key_value_heads":8})"),
              ElementsAre(2 * 8 * 128));
  EXPECT_THAT(elements(R"({"num_hidden_layers":1,"num_attention_heads":16,"hidden_size":3072,
                           "num_key_value_heads":16,"head_dim":256})"),
              ElementsAre(2 * 16 * 256));
  EXPECT_THAT(elements(R"({"num_hidden_layers":1,"num_attention_heads":71,"hidden_size":4544,
                           "multi_query":true,"num_kv_heads":71})"),
              ElementsAre(2 * 64));
  EXPECT_THAT(elements(R"({"n_layer":1,"n_head":12,"n_embd":768})"), ElementsAre(2 * 768));
  EXPECT_THAT(elements(R"({"num_layers":1,"num_attention_heads":32,"kv_channels":128,
                           "multi_query_attention":true,"multi_query_group_num":2})"),
              ElementsAre(2 * 2 * 128));
  EXPECT_THAT(elements(R"({"n_layers":1,"n_heads":48,"d_model":6144,
                           "attn_config":{"kv_n_heads":8}})"),
              ElementsAre(2 * 8 * 128));
  // Keys and values of different size.
  EXPECT_THAT(elements(R"({"num_hidden_layers":1,"num_attention_heads":64,"head_dim":192,
                           "v_head_dim":128,"num_key_value_heads":4})"),
              ElementsAre(4 * (192 + 128)));
  EXPECT_THAT(elements(R"({"num_hidden_layers":9,"text_config":{"num_hidden_layers":1,
                           "num_attention_heads":2,"hidden_size":8}})"),
              ElementsAre(16));
}

TEST(KvCacheConfig, CountsLatentAttentionOnceForAllHeads) {
  const std::string deepseek =
      R"({"num_hidden_layers":2,"num_attention_heads":128,"num_key_value_heads":128,
          "hidden_size":7168,"kv_lora_rank":512,"qk_rope_head_dim":64,"qk_nope_head_dim":128,
          "v_head_dim":128,"max_position_embeddings":100})";
  EXPECT_THAT(elements(deepseek), ElementsAre(576, 576));
  const auto cache = cli::read_kv_cache_config(deepseek, 101).value();
  // 128 heads of 192 and 128 elements, where they are kept.
  EXPECT_THAT(cache.warnings, ElementsAre(HasSubstr("takes 71 times that"),
                                          HasSubstr("--context 101 is more than the 100")));
}

TEST(KvCacheConfig, KnowsWhichLayersSlide) {
  const std::string base = R"("num_attention_heads":2,"hidden_size":8,"sliding_window":64)";
  const auto config = [&](const std::string& more) { return "{" + base + "," + more + "}"; };
  EXPECT_THAT(windows(config(R"("num_hidden_layers":2,"model_type":"mistral")")),
              ElementsAre(64, 64));
  EXPECT_THAT(windows(config(R"("num_hidden_layers":2,"layer_types":
                                ["sliding_attention","full_attention"])")),
              ElementsAre(64, 0));
  EXPECT_THAT(windows(config(R"("num_hidden_layers":2,"attention_chunk_size":32,"layer_types":
                                ["chunked_attention","full_attention"])")),
              ElementsAre(32, 0));
  EXPECT_THAT(windows(config(R"("num_hidden_layers":3,"use_sliding_window":true,
                                "max_window_layers":2)")),
              ElementsAre(0, 0, 64));
  EXPECT_THAT(windows(config(R"("num_hidden_layers":2,"use_sliding_window":false,
                                "max_window_layers":1)")),
              ElementsAre(0, 0));
  EXPECT_THAT(windows(config(R"("num_hidden_layers":3,"model_type":"gemma2")")),
              ElementsAre(64, 0, 64));
  EXPECT_THAT(windows(config(R"("num_hidden_layers":4,"sliding_window_pattern":3)")),
              ElementsAre(64, 64, 0, 64));
  EXPECT_THAT(windows(config(R"("num_hidden_layers":4,"num_kv_shared_layers":3,
                                "sliding_window_pattern":3)")),
              ElementsAre(64));
  const auto unsaid = cli::read_kv_cache_config(config(R"("num_hidden_layers":1)"), 1).value();
  EXPECT_FALSE(unsaid.layers.front().window_tokens);
  EXPECT_THAT(unsaid.warnings, ElementsAre(HasSubstr("does not say for which layers")));
  EXPECT_THAT(cli::read_kv_cache_config(config(R"("num_hidden_layers":1,"model_type":"phi3")"), 1)
                  .value()
                  .warnings,
              IsEmpty());
}

TEST(KvCacheConfig, RefusesWhatItCannotTell) {
  const struct {
    std::string config;
    std::string message;
  } cases[] = {
      {"", "there is no config.json"},
      {"[]", "no JSON object"},
      {std::string(100'000, '['), "no JSON object"},
      {R"({"_class_name":"FluxTransformer2DModel"})", "no num_hidden_layers"},
      {R"({"num_hidden_layers":0})", "no num_hidden_layers"},
      {R"({"num_hidden_layers":-3})", "no num_hidden_layers"},
      {R"({"num_hidden_layers":100000})", "no num_hidden_layers"},
      {R"({"num_hidden_layers":2})", "no num_attention_heads"},
      {R"({"num_hidden_layers":2,"num_attention_heads":3,"hidden_size":8})", "no head_dim"},
      {R"({"num_hidden_layers":2,"num_attention_heads":3})", "no head_dim"},
      {R"({"num_hidden_layers":2,"num_attention_heads":2,"kv_lora_rank":512})", "qk_rope_head_dim"},
      {R"({"num_hidden_layers":2,"is_encoder_decoder":true})", "encoder-decoder"},
      {R"({"num_hidden_layers":2,"hybrid_override_pattern":"M-M*"})", "hybrid_override_pattern"},
      {R"({"num_hidden_layers":2,"num_attention_heads":2,"hidden_size":8,
           "layer_types":["linear_attention","full_attention"]})",
       "layer 0 is linear_attention"},
      {R"({"num_hidden_layers":2,"num_attention_heads":2,"hidden_size":8,
           "layer_types":["full_attention"]})",
       "layer_types"},
      {R"({"num_hidden_layers":1,"num_attention_heads":2,"hidden_size":8,
           "layer_types":["sliding_attention"]})",
       "without a window"},
  };
  for (const auto& wrong : cases) {
    const auto cache = cli::read_kv_cache_config(wrong.config, 1);
    ASSERT_FALSE(cache) << wrong.config;
    EXPECT_EQ(cache.error().code(), ErrorCode::kUnsupported);
    EXPECT_THAT(cache.error().message(), HasSubstr(wrong.message));
    EXPECT_THAT(cache.error().hint(), HasSubstr("--headroom-vram"));
  }
}

class PlanContext : public CliTest {
 protected:
  PlanContext() {
    write_text(path("config.json"),
               R"({"num_hidden_layers":4,"num_attention_heads":4,"hidden_size":64})");
  }
};

TEST_F(PlanContext, LeavesRoomForTheKvCache) {
  const auto budget = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"plan", "model.safetensors", "--json", "--max-vram=0"});
    const RunResult result = run(options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["budget"];
  };
  const nlohmann::json without = budget({});
  EXPECT_EQ(without["kv_cache_bytes"], 0);
  const nlohmann::json with = budget({"--context", "1000", "--batch", "3", "--kv-dtype", "fp8"});
  const std::uint64_t cache_bytes = 4ULL * 2 * 64 * 1000 * 3;
  EXPECT_EQ(with["kv_cache_bytes"], cache_bytes);
  EXPECT_EQ(with["ram_used_bytes"], without["ram_used_bytes"].get<std::uint64_t>() + cache_bytes);
  EXPECT_THAT(run({"plan", "model.safetensors", "--max-vram=0", "--context=1000"}).out,
              HasSubstr("KV cache 1.02 MB"));
}

TEST_F(PlanContext, IsRecordedAndAskedForAgain) {
  const std::vector<std::string> options = {
      "plan", "model.safetensors", "--max-vram=0", "--context", "1000", "-o", "plan.toml"};
  ASSERT_EQ(run(options).exit_code, 0);
  const std::string text = read_text(path("plan.toml"));
  EXPECT_THAT(text, HasSubstr("kv_cache_bytes = 1024000  # 1.02 MB\n"));
  EXPECT_THAT(text, HasSubstr("context_tokens = 1000\nbatch_size = 1\nkv_dtype = \"bf16\"\n"));
  EXPECT_EQ(run({"plan", "model.safetensors", "--from=plan.toml", "-o-"}).out, text);
  EXPECT_THAT(run({"plan", "model.safetensors", "--from=plan.toml", "--batch=2", "-o-"}).out,
              HasSubstr("kv_cache_bytes = 2048000  # 2.05 MB\n"));
  const std::string dropped =
      run({"plan", "model.safetensors", "--from=plan.toml", "--context=auto", "-o-"}).out;
  EXPECT_THAT(dropped, ::testing::Not(HasSubstr("kv_cache_bytes")));
}

TEST_F(PlanContext, RefusesAndWarns) {
  expect_failure(run({"plan", "model.safetensors", "--context=0"}), 2, {"--context: '0'"});
  expect_failure(run({"plan", "model.safetensors", "--context=9", "--batch=0"}), 2, {"--batch"});
  expect_failure(run({"plan", "model.safetensors", "--context=many"}), 2, {"--context"});
  expect_failure(run({"plan", "model.safetensors", "--context=9", "--kv-dtype=int4"}), 2,
                 {"bf16, fp16, fp32, fp8"});
  const RunResult idle = run({"plan", "model.safetensors", "--batch=2", "--kv-dtype=fp8"});
  EXPECT_EQ(idle.exit_code, 0);
  EXPECT_THAT(idle.err, HasSubstr("warning: --batch has no effect"));
  EXPECT_THAT(idle.err, HasSubstr("warning: --kv-dtype has no effect"));
  std::filesystem::remove(path("config.json"));
  expect_failure(run({"plan", "model.safetensors", "--context=9"}), 4,
                 {"there is no config.json", "--headroom-vram"});
}

}  // namespace
}  // namespace trash_panda::testing
