#include "kv_cache_config.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/json_depth.h"
#include "trash_panda/base/printable.h"

namespace trash_panda::cli {

namespace {

using ConfigJson = nlohmann::json;
using Keys = std::initializer_list<const char*>;

/// Larger numbers of heads and of their elements are none; products of two stay in range.
constexpr std::uint64_t kDimensionMax = 1U << 24U;
constexpr std::uint64_t kLayersMax = 1U << 16U;

/// Keys of models that keep more than one cache of one size for each layer.
constexpr std::array kOtherCaches = {"cross_attention_layers",
                                     "hybrid_override_pattern",
                                     "attn_layer_period",
                                     "attn_layer_indices",
                                     "linear_attn_config",
                                     "mamba_d_state",
                                     "ssm_cfg",
                                     "block_configs",
                                     "index_head_dim",
                                     "global_head_dim",
                                     "num_global_key_value_heads"};

/// Families whose one window is that of all layers.
constexpr std::array<std::string_view, 4> kAllLayersSlide = {"mistral", "mixtral", "phi3",
                                                             "starcoder2"};

Error untold(std::string_view what) {
  return Error(ErrorCode::kUnsupported, fmt::format("the KV cache is not known: {}", what))
      .with_hint("without --context, --headroom-vram or --min-free-ram leaves room for it");
}

const ConfigJson* member(const ConfigJson& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::uint64_t> first_number(const ConfigJson& config, Keys keys) {
  for (const char* key : keys) {
    const ConfigJson* const value = member(config, key);
    if (value != nullptr && value->is_number_unsigned() && value->get<std::uint64_t>() > 0 &&
        value->get<std::uint64_t>() <= kDimensionMax) {
      return value->get<std::uint64_t>();
    }
  }
  return std::nullopt;
}

bool is_true(const ConfigJson& config, const char* key) {
  const ConfigJson* const value = member(config, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::string config_text(const ConfigJson& config, const char* key) {
  const ConfigJson* const value = member(config, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<std::uint64_t> layer_count(const ConfigJson& config) {
  return first_number(config, {"num_hidden_layers", "n_layer", "num_layers", "n_layers"});
}

/// The language part of a composite model, else the whole.
const ConfigJson& language_part(const ConfigJson& config) {
  for (const char* key : {"text_config", "language_config", "llm_config"}) {
    const ConfigJson* const part = member(config, key);
    if (part != nullptr && layer_count(*part)) {
      return *part;
    }
  }
  return config;
}

Result<void> check_kind(const ConfigJson& config) {
  if (is_true(config, "is_encoder_decoder")) {
    return std::unexpected(
        untold("an encoder-decoder keeps a second cache of the encoder's length"));
  }
  for (const char* key : kOtherCaches) {
    if (member(config, key) != nullptr) {
      return std::unexpected(
          untold(fmt::format("config.json has {}: layers keep different things", key)));
    }
  }
  if (member(config, "full_attention_interval") != nullptr &&
      member(config, "layer_types") == nullptr) {
    return std::unexpected(untold("config.json has full_attention_interval and no layer_types"));
  }
  return {};
}

std::optional<std::uint64_t> kv_head_count(const ConfigJson& config, std::uint64_t head_count) {
  if (const ConfigJson* const attention = member(config, "attn_config")) {
    if (const auto count = first_number(*attention, {"kv_n_heads"})) {
      return count;
    }
  }
  // Falcon's first generation has the number of a later one beside the flag.
  if (is_true(config, "multi_query") && !is_true(config, "new_decoder_architecture")) {
    return 1;
  }
  if (is_true(config, "multi_query_attention")) {
    return first_number(config, {"multi_query_group_num"});
  }
  return first_number(config, {"num_key_value_heads", "num_kv_heads", "n_head_kv"})
      .value_or(head_count);
}

/// Elements that one layer keeps of a token.
Result<std::uint64_t> elements_per_token(const ConfigJson& config, KvCacheConfig& cache) {
  const auto head_count =
      first_number(config, {"num_attention_heads", "n_head", "n_heads", "num_heads"});
  if (!head_count) {
    return std::unexpected(untold("config.json has no num_attention_heads"));
  }
  if (const auto latent = first_number(config, {"kv_lora_rank"})) {
    const auto rope = first_number(config, {"qk_rope_head_dim"});
    const auto nope = first_number(config, {"qk_nope_head_dim"});
    const auto value = first_number(config, {"v_head_dim"});
    if (!rope || !nope || !value) {
      return std::unexpected(untold(
          "config.json has kv_lora_rank, but not all of qk_rope_head_dim, qk_nope_head_dim and "
          "v_head_dim"));
    }
    const std::uint64_t elements = *latent + *rope;
    cache.warnings.push_back(fmt::format(
        "the KV cache is counted in its latent form; code that keeps keys and values of every "
        "head, such as transformers, takes {:.0f} times that",
        static_cast<double>(*head_count * (*nope + *rope + *value)) /
            static_cast<double>(elements)));
    return elements;
  }
  const auto kv_heads = kv_head_count(config, *head_count);
  if (!kv_heads) {
    return std::unexpected(untold("config.json has no multi_query_group_num"));
  }
  auto head_dim = first_number(config, {"head_dim", "kv_channels"});
  if (!head_dim) {
    const auto hidden = first_number(config, {"hidden_size", "n_embd", "d_model"});
    if (!hidden || *hidden % *head_count != 0) {
      return std::unexpected(
          untold("config.json has no head_dim, and no hidden_size that the heads divide"));
    }
    head_dim = *hidden / *head_count;
  }
  return *kv_heads * (*head_dim + first_number(config, {"v_head_dim"}).value_or(*head_dim));
}

/// Windows by what each layer is called.
Result<void> apply_layer_types(const ConfigJson& config, const ConfigJson& types,
                               std::vector<plan::LayerCache>& layers) {
  if (!types.is_array() || types.size() != layers.size()) {
    return std::unexpected(untold("layer_types of config.json does not name each layer"));
  }
  for (std::size_t index = 0; index < layers.size(); ++index) {
    const std::string type = types[index].is_string() ? types[index].get<std::string>() : "";
    if (type == "full_attention") {
      continue;
    }
    if (type == "sliding_attention") {
      layers[index].window_tokens = first_number(config, {"sliding_window"});
    } else if (type == "chunked_attention") {
      layers[index].window_tokens = first_number(config, {"attention_chunk_size"});
    }
    if (!layers[index].window_tokens) {
      return std::unexpected(
          untold(fmt::format("layer {} is {} in config.json, without a window", index,
                             type.empty() ? "no word" : printable(type))));
    }
  }
  return {};
}

/// Every how many layers one keeps all tokens, where the others slide.
std::optional<std::uint64_t> full_layer_period(const ConfigJson& config) {
  if (const auto period =
          first_number(config, {"sliding_window_pattern", "_sliding_window_pattern"})) {
    return period;
  }
  const std::string family = config_text(config, "model_type");
  // Where config.json leaves it out, these are the families' defaults in transformers.
  return family == "gemma2"                              ? std::optional<std::uint64_t>(2)
         : family == "gemma3" || family == "gemma3_text" ? std::optional<std::uint64_t>(6)
         : family == "cohere2"                           ? std::optional<std::uint64_t>(4)
                                                         : std::nullopt;
}

/// Windows of configurations that do not list their layers.
void apply_window(const ConfigJson& config, KvCacheConfig& cache) {
  const auto window = first_number(config, {"sliding_window"});
  const bool is_switched_off =
      member(config, "use_sliding_window") != nullptr && !is_true(config, "use_sliding_window");
  if (!window || is_switched_off) {
    return;
  }
  const std::string family = config_text(config, "model_type");
  const auto first_sliding = first_number(config, {"max_window_layers"});
  const auto period = full_layer_period(config);
  const bool all_slide = std::ranges::find(kAllLayersSlide, family) != kAllLayersSlide.end();
  if (!period && !all_slide && !(first_sliding && is_true(config, "use_sliding_window"))) {
    cache.warnings.emplace_back(
        "config.json has a sliding_window and does not say for which layers: the KV cache is "
        "counted without it");
    return;
  }
  for (std::size_t index = 0; index < cache.layers.size(); ++index) {
    const bool slides = period      ? (index + 1) % *period != 0
                        : all_slide ? true
                                    : index >= *first_sliding;
    if (slides) {
      cache.layers[index].window_tokens = window;
    }
  }
}

}  // namespace

Result<KvCacheConfig> read_kv_cache_config(std::string_view config, std::uint64_t context_tokens) {
  if (config.empty()) {
    return std::unexpected(untold("there is no config.json beside the model"));
  }
  const ConfigJson document = is_json_too_deep(config)
                                  ? ConfigJson(ConfigJson::value_t::discarded)
                                  : ConfigJson::parse(config, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) {
    return std::unexpected(untold("config.json is no JSON object"));
  }
  const ConfigJson& part = language_part(document);
  const auto count = layer_count(part);
  if (!count || *count > kLayersMax) {
    return std::unexpected(untold("config.json has no num_hidden_layers"));
  }
  TP_RETURN_IF_ERROR(check_kind(part));
  KvCacheConfig cache;
  TP_ASSIGN_OR_RETURN(const std::uint64_t elements, elements_per_token(part, cache));
  cache.layers.assign(*count, {.elements_per_token = elements, .window_tokens = {}});
  if (const ConfigJson* const types = member(part, "layer_types")) {
    TP_RETURN_IF_ERROR(apply_layer_types(part, *types, cache.layers));
  } else {
    apply_window(part, cache);
  }
  // The last layers of Gemma 3n read what earlier ones keep.
  const std::uint64_t shared = first_number(part, {"num_kv_shared_layers"}).value_or(0);
  cache.layers.resize(*count - std::min(shared, *count));
  const auto positions = first_number(part, {"max_position_embeddings", "n_positions"});
  if (positions && context_tokens > *positions) {
    cache.warnings.push_back(
        fmt::format("--context {} is more than the {} positions that config.json gives",
                    context_tokens, *positions));
  }
  return cache;
}

}  // namespace trash_panda::cli
