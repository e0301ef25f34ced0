#include "architecture_names.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <vector>

namespace trash_panda::cli {

namespace {

constexpr std::size_t kTellsMax = 3;

struct Family {
  std::string_view name;
  std::array<std::string_view, kTellsMax> tells;  ///< Each is in the name of some tensor.
};

/// The particular before the general: the first whose tells are all found is it. "Original" names
/// are those of the authors' own releases, the others those of diffusers and transformers.
constexpr std::array kFamilies = {
    // Diffusion models, whole and in parts.
    Family{"Stable Diffusion XL checkpoint",
           {"conditioner.embedders.1.", "diffusion_model.input_blocks.", "first_stage_model."}},
    Family{"Stable Diffusion checkpoint",
           {"cond_stage_model.", "diffusion_model.input_blocks.", "first_stage_model."}},
    Family{"Stable Diffusion UNet (original names)", {"input_blocks.", "output_blocks."}},
    Family{"HunyuanVideo transformer (original names)",
           {"double_blocks.", "individual_token_refiner."}},
    Family{"HunyuanVideo transformer",
           {"single_transformer_blocks.", "token_refiner.refiner_blocks."}},
    Family{"FLUX transformer (original names)", {"double_blocks.", "single_blocks.", "img_in."}},
    Family{"FLUX transformer", {"single_transformer_blocks.", "transformer_blocks."}},
    Family{"Wan transformer (original names)", {"time_projection.1.", "blocks.", "cross_attn."}},
    Family{"Wan transformer", {"condition_embedder.time_proj.", "blocks.", "attn2."}},
    Family{"Qwen-Image transformer", {"transformer_blocks.", ".img_mod.", "txt_norm."}},
    Family{"LTX-Video transformer (original names)", {"patchify_proj.", "adaln_single."}},
    Family{"LTX-Video transformer", {"time_embed.emb.", "caption_projection.", "proj_in."}},
    Family{"PixArt transformer", {"adaln_single.", "pos_embed.proj.", "caption_projection."}},
    Family{"Stable Diffusion 3 transformer (original names)", {"joint_blocks.", "x_embedder."}},
    Family{"Stable Diffusion 3 transformer",
           {"transformer_blocks.", "pos_embed.pos_embed", "context_embedder."}},
    Family{"Z-Image or Lumina 2 transformer", {"noise_refiner.", "context_refiner.", "layers."}},
    Family{"Stable Diffusion XL UNet", {"down_blocks.", "up_blocks.", "add_embedding."}},
    Family{"Stable Diffusion UNet", {"down_blocks.", "up_blocks.", "time_embedding."}},
    Family{"autoencoder", {"encoder.down_blocks.", "decoder.up_blocks."}},
    Family{"autoencoder (original names)", {"encoder.down.", "decoder.up."}},
    // Text and vision encoders.
    Family{"T5 encoder and decoder", {"encoder.block.", "decoder.block.", "SelfAttention"}},
    Family{"T5 encoder", {"encoder.block.", "SelfAttention"}},
    Family{"CLIP text and vision encoders", {"text_model.encoder.", "vision_model.encoder."}},
    Family{"CLIP text encoder", {"text_model.encoder.layers."}},
    Family{"BERT", {"encoder.layer.", "attention.self.query"}},
    // Language models.
    Family{"DeepSeek V2 or V3", {"kv_a_proj_with_mqa"}},
    Family{"gpt-oss", {"self_attn.sinks"}},
    Family{"Mixtral", {"block_sparse_moe."}},
    Family{"Qwen3 MoE", {"self_attn.q_norm.", "mlp.experts."}},
    Family{"Gemma 2 or 3", {"pre_feedforward_layernorm", "self_attn.q_proj."}},
    Family{"Qwen3", {"self_attn.q_norm.", "mlp.gate_proj."}},
    Family{"Qwen2", {"self_attn.q_proj.bias", "mlp.gate_proj."}},
    Family{"Llama or Mistral", {"self_attn.q_proj.", "mlp.gate_proj."}},
    Family{"Falcon", {"self_attention.query_key_value", "mlp.dense_h_to_4h"}},
    Family{"GPT-2", {"attn.c_attn.", "mlp.c_fc."}},
    Family{"Mamba", {"mixer.A_log"}},
};

/// Blocks are alike: one of each group and what is outside tell as much as all of them.
std::vector<std::string_view> sample_names(std::span<const format::TensorRecord> tensors,
                                           const plan::BlockMap& blocks) {
  std::vector<std::string_view> names;
  const auto add = [&](const std::vector<std::size_t>& indexes) {
    std::ranges::transform(indexes, std::back_inserter(names), [&](std::size_t index) {
      return std::string_view(tensors[index].name);
    });
  };
  add(blocks.outside);
  for (const plan::BlockGroup& group : blocks.groups) {
    // Both ends: the first few of a mixture of experts may have none.
    add(group.blocks.front().tensors);
    add(group.blocks.back().tensors);
  }
  return names;
}

bool is_of(const Family& family, const std::vector<std::string_view>& names) {
  return std::ranges::all_of(family.tells, [&](std::string_view tell) {
    return tell.empty() || std::ranges::any_of(names, [tell](std::string_view name) {
             return name.find(tell) != std::string_view::npos;
           });
  });
}

}  // namespace

std::string_view guess_architecture(std::span<const format::TensorRecord> tensors,
                                    const plan::BlockMap& blocks) {
  const std::vector<std::string_view> names = sample_names(tensors, blocks);
  const auto* family = std::ranges::find_if(
      kFamilies, [&names](const Family& candidate) { return is_of(candidate, names); });
  return family == kFamilies.end() ? std::string_view() : family->name;
}

}  // namespace trash_panda::cli
