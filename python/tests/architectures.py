"""Tiny models of transformers' architectures, each with inputs that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers")

LAYERS = 4


@dataclass(frozen=True)
class Architecture:
    """`cls` and the config's class by name: what a version of transformers lacks is skipped."""

    cls: str
    config_cls: str
    config: dict[str, Any]
    inputs: Callable[[], dict[str, torch.Tensor]]
    generates: bool = False

    def make(self) -> nn.Module:
        return getattr(transformers, self.cls)(self.make_config())

    def make_config(self) -> Any:
        return getattr(transformers, self.config_cls)(**self.config)


def ids() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.arange(12).reshape(2, 6) * 7 % 100}


def ids_for_both() -> dict[str, torch.Tensor]:
    return {**ids(), "decoder_input_ids": ids()["input_ids"].flip(0)}


def pixels(size: int = 16) -> torch.Tensor:
    count = 2 * 3 * size * size
    return torch.linspace(-1, 1, count).reshape(2, 3, size, size)


def text_and_pixels() -> dict[str, torch.Tensor]:
    return {**ids(), "pixel_values": pixels()}


def features() -> dict[str, torch.Tensor]:
    return {
        "input_features": torch.linspace(-1, 1, 2 * 16 * 32).reshape(2, 16, 32),
        "decoder_input_ids": ids()["input_ids"],
    }


def waves() -> dict[str, torch.Tensor]:
    return {"input_values": torch.linspace(-1, 1, 2 * 800).reshape(2, 800)}


BODY = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
}
DECODER = {**BODY, "num_key_value_heads": 2, "max_position_embeddings": 64}
DEEPSEEK = {
    **DECODER,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
VISION = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 8,
}
CLIP_TEXT = {**BODY, "max_position_embeddings": 16, "eos_token_id": 2, "bos_token_id": 1}
GPT2 = {"vocab_size": 128, "n_embd": 64, "n_layer": LAYERS, "n_head": 4, "n_positions": 64}
T5 = {
    "vocab_size": 128,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": LAYERS,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
WHISPER = {
    "vocab_size": 128,
    "d_model": 64,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "num_mel_bins": 16,
    "max_source_positions": 16,
    "max_target_positions": 32,
    "decoder_start_token_id": 1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
}
WAV2VEC2 = {
    **BODY,
    "conv_dim": (32, 32),
    "conv_kernel": (10, 3),
    "conv_stride": (5, 2),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}

ARCHITECTURES = {
    "llama": Architecture("LlamaForCausalLM", "LlamaConfig", DECODER, ids, generates=True),
    "llama tied": Architecture(
        "LlamaForCausalLM",
        "LlamaConfig",
        {**DECODER, "tie_word_embeddings": True},
        ids,
        generates=True,
    ),
    "qwen2": Architecture("Qwen2ForCausalLM", "Qwen2Config", DECODER, ids, generates=True),
    "mixtral": Architecture(
        "MixtralForCausalLM",
        "MixtralConfig",
        {**DECODER, "num_local_experts": 4},
        ids,
        generates=True,
    ),
    "gemma2": Architecture(
        "Gemma2ForCausalLM", "Gemma2Config", {**DECODER, "head_dim": 16}, ids, generates=True
    ),
    "phi": Architecture("PhiForCausalLM", "PhiConfig", DECODER, ids, generates=True),
    "gpt2": Architecture("GPT2LMHeadModel", "GPT2Config", GPT2, ids, generates=True),
    "gpt_neox": Architecture(
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {**BODY, "max_position_embeddings": 64},
        ids,
        generates=True,
    ),
    "bert": Architecture("BertForMaskedLM", "BertConfig", BODY, ids),
    "bert bare": Architecture("BertModel", "BertConfig", BODY, ids),
    "t5": Architecture("T5ForConditionalGeneration", "T5Config", T5, ids_for_both, generates=True),
    "clip": Architecture(
        "CLIPModel",
        "CLIPConfig",
        {"text_config": CLIP_TEXT, "vision_config": VISION, "projection_dim": 32},
        text_and_pixels,
    ),
    "clip text": Architecture("CLIPTextModel", "CLIPTextConfig", CLIP_TEXT, ids),
    "vit": Architecture("ViTModel", "ViTConfig", VISION, lambda: {"pixel_values": pixels()}),
    "whisper": Architecture("WhisperForConditionalGeneration", "WhisperConfig", WHISPER, features),
    "falcon": Architecture(
        "FalconForCausalLM",
        "FalconConfig",
        {**BODY, "new_decoder_architecture": True, "num_kv_heads": 2, "bos_token_id": 1},
        ids,
        generates=True,
    ),
    "deepseek v3": Architecture(
        "DeepseekV3ForCausalLM", "DeepseekV3Config", DEEPSEEK, ids, generates=True
    ),
    "wav2vec2": Architecture("Wav2Vec2Model", "Wav2Vec2Config", WAV2VEC2, waves),
}


def build(architecture: Architecture) -> nn.Module:
    """Built with weights that a seed gives."""
    torch.manual_seed(1)
    model = architecture.make()
    with torch.no_grad():
        for parameter in model.parameters():
            if bool((parameter == parameter.flatten()[0]).all()):
                # Ones and zeros of norms and biases would hide a mix-up.
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def outputs(model: nn.Module, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The tensors of the model's output; float inputs in its dtype."""
    floats = {
        key: value.to(model.dtype) if value.is_floating_point() else value
        for key, value in inputs.items()
    }
    with torch.no_grad():
        result = model(**floats, return_dict=True)
    return [value for value in result.values() if isinstance(value, torch.Tensor)]
