"""A text encoder, a diffusion transformer and a decoder that share one small memory.

    python chain.py

Makes the three models, tiny and random, on the spot: T5, PixArt and AutoencoderKL.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import diffusers
import torch
import transformers
from torch import nn

from trash_panda import Pipeline, Stage

STEPS = 4


def build_t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=128, d_model=32, d_kv=8, d_ff=64, num_layers=4, num_heads=4
    )
    return transformers.T5EncoderModel(config).eval()


def build_dit() -> nn.Module:
    return diffusers.PixArtTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=8,
        in_channels=4,
        out_channels=4,
        num_layers=6,
        cross_attention_dim=32,
        sample_size=8,
        caption_channels=32,
    ).eval()


def build_vae() -> nn.Module:
    return diffusers.AutoencoderKL(
        block_out_channels=(32, 64),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=8,
    ).eval()


@torch.no_grad()
def main(folder: Path) -> None:
    builders = {"encode": build_t5, "denoise": build_dit, "decode": build_vae}
    for name, build in builders.items():
        build().save_pretrained(folder / name)

    pipeline = Pipeline(
        [
            Stage("encode", build_t5, folder / "encode", forwards=1),
            Stage("denoise", build_dit, folder / "denoise", forwards=STEPS),
            Stage("decode", build_vae, folder / "decode"),
        ],
        max_ram="8MB",  # For weights. Of real models: what the machine can spare.
    )
    with pipeline:
        with pipeline.run("encode") as t5:
            prompt = t5(torch.tensor([[3, 14, 15, 92, 1]])).last_hidden_state

        latents = torch.randn(1, 4, 8, 8, dtype=prompt.dtype)
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler()
        scheduler.set_timesteps(STEPS)
        with pipeline.run("denoise") as dit:
            sizes = {"resolution": None, "aspect_ratio": None}
            for t in scheduler.timesteps:
                flow = dit(
                    latents,
                    encoder_hidden_states=prompt,
                    timestep=t[None],
                    added_cond_kwargs=sizes,
                ).sample
                latents = scheduler.step(flow, t, latents).prev_sample

        with pipeline.run("decode") as vae:
            image = vae.decode(latents.to(vae.dtype)).sample
        print("image", list(image.shape))
        print(pipeline.report())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
