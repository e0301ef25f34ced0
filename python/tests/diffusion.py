"""Tiny models of diffusers' architectures, each with inputs that it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

diffusers = pytest.importorskip("diffusers")


@dataclass(frozen=True)
class Diffusion:
    """A class of diffusers by name, its config, and the arguments of a call."""

    cls: str
    config: dict[str, Any]
    inputs: Callable[[], dict[str, Any]]
    call: Callable[[nn.Module, dict[str, Any]], Any] = lambda model, inputs: model(
        **inputs, return_dict=False
    )

    def make(self) -> nn.Module:
        return getattr(diffusers, self.cls)(**self.config)


def ramp(*shape: int) -> Tensor:
    count = torch.Size(shape).numel()
    return torch.linspace(-1, 1, count).reshape(shape)


def step() -> Tensor:
    return torch.tensor([7])


UNET = {
    "sample_size": 8,
    "block_out_channels": (32, 64),
    "layers_per_block": 1,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "cross_attention_dim": 32,
    "attention_head_dim": 8,
    "norm_num_groups": 8,
}
SD3 = {
    "sample_size": 8,
    "patch_size": 2,
    "in_channels": 4,
    "out_channels": 4,
    "num_layers": 3,
    "attention_head_dim": 8,
    "num_attention_heads": 4,
    "joint_attention_dim": 32,
    "caption_projection_dim": 32,
    "pooled_projection_dim": 32,
    "pos_embed_max_size": 8,
}
FLUX = {
    "patch_size": 1,
    "in_channels": 4,
    "num_layers": 2,
    "num_single_layers": 3,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 32,
    "pooled_projection_dim": 32,
    "axes_dims_rope": (4, 4, 8),
}
WAN = {
    "patch_size": (1, 2, 2),
    "num_attention_heads": 2,
    "attention_head_dim": 12,
    "in_channels": 4,
    "out_channels": 4,
    "text_dim": 16,
    "freq_dim": 32,
    "ffn_dim": 48,
    "num_layers": 3,
    "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads",
    "rope_max_seq_len": 32,
}
QWEN = {
    "patch_size": 2,
    "in_channels": 16,
    "out_channels": 4,
    "num_layers": 3,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 16,
    "axes_dims_rope": (8, 4, 4),
}
VAE = {
    "block_out_channels": (32, 64),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "latent_channels": 4,
    "norm_num_groups": 8,
}

DIFFUSION = {
    "unet": Diffusion(
        "UNet2DConditionModel",
        UNET,
        lambda: {
            "sample": ramp(1, 4, 8, 8),
            "timestep": step(),
            "encoder_hidden_states": ramp(1, 5, 32),
        },
    ),
    "sd3": Diffusion(
        "SD3Transformer2DModel",
        SD3,
        lambda: {
            "hidden_states": ramp(1, 4, 8, 8),
            "encoder_hidden_states": ramp(1, 5, 32),
            "pooled_projections": ramp(1, 32),
            "timestep": step(),
        },
    ),
    "flux": Diffusion(
        "FluxTransformer2DModel",
        FLUX,
        lambda: {
            "hidden_states": ramp(1, 16, 4),
            "encoder_hidden_states": ramp(1, 5, 32),
            "pooled_projections": ramp(1, 32),
            "timestep": torch.tensor([0.5]),
            "img_ids": torch.arange(48).reshape(16, 3) % 4,
            "txt_ids": torch.zeros(5, 3, dtype=torch.int64),
        },
    ),
    "wan": Diffusion(
        "WanTransformer3DModel",
        WAN,
        lambda: {
            "hidden_states": ramp(1, 4, 2, 8, 8),
            "timestep": step(),
            "encoder_hidden_states": ramp(1, 5, 16),
        },
    ),
    "qwen image": Diffusion(
        "QwenImageTransformer2DModel",
        QWEN,
        lambda: {
            "hidden_states": ramp(1, 16, 16),
            "encoder_hidden_states": ramp(1, 5, 16),
            "encoder_hidden_states_mask": torch.ones(1, 5, dtype=torch.int64),
            "timestep": torch.tensor([0.5]),
            "img_shapes": [(1, 4, 4)],
        },
    ),
    "vae": Diffusion(
        "AutoencoderKL",
        VAE,
        lambda: {"pixels": ramp(1, 3, 16, 16)},
        lambda model, inputs: (
            model.encode(inputs["pixels"], return_dict=False)[0].mode(),
            *model.decode(ramp(1, 4, 8, 8).to(model.dtype), return_dict=False),
        ),
    ),
}


def build(diffusion: Diffusion) -> nn.Module:
    torch.manual_seed(1)
    return diffusion.make().eval()


def outputs(diffusion: Diffusion, model: nn.Module) -> list[Tensor]:
    """The tensors of the model's output; float inputs in its dtype."""
    inputs = {
        key: value.to(model.dtype)
        if isinstance(value, Tensor) and value.is_floating_point()
        else value
        for key, value in diffusion.inputs().items()
    }
    with torch.no_grad():
        result = diffusion.call(model, inputs)
    return [value for value in result if isinstance(value, Tensor)]
