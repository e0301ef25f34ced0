"""An application that has its own model class, checkpoint names and sampling loop.

    python manual.py

As node-based programs do it: a single file whose names have a prefix, adapters that are turned on
and off, blocks that the program calls itself, a model that is let go when another one is wanted.
Makes a small model, its checkpoint and an adapter on the spot.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import trash_panda

PREFIX = "model.diffusion_model."


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(64, 128)
        self.down = nn.Linear(128, 64)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down(self.up(hidden).relu())


class Diffusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)
        self.blocks = nn.ModuleList(Block() for _ in range(8))


def make_files(folder: Path) -> tuple[Path, Path]:
    checkpoint, adapter = folder / "model.safetensors", folder / "style.safetensors"
    save_file(
        {PREFIX + name: value for name, value in Diffusion().state_dict().items()}, checkpoint
    )
    halves = {
        "lora_unet_blocks_3_up.lora_down.weight": torch.randn(4, 64),
        "lora_unet_blocks_3_up.lora_up.weight": torch.randn(128, 4),
    }
    save_file(halves, adapter)
    return checkpoint, adapter


def pack(checkpoint: Path) -> Path:
    """Once for each checkpoint; an application would look for the pack first."""
    target = checkpoint.with_suffix(".panda")
    program = Path(sys.executable).with_name("trash-panda")
    subprocess.run([program, "--quiet", "repack", checkpoint, "-o", target], check=True)
    return target


@torch.no_grad()
def sample(model: Diffusion, hidden: Tensor) -> Tensor:
    """Calls the parts itself; a block's weights come and go with its call."""
    hidden = model.inner(hidden)
    for block in model.blocks:
        hidden = block(hidden)
    return hidden


def main(folder: Path) -> None:
    checkpoint, adapter = make_files(folder)
    with torch.device("meta"):  # The structure only, no weights in memory.
        model = Diffusion()
    loaded = trash_panda.load(
        pack(checkpoint), model, key_map=lambda name: name.removeprefix(PREFIX)
    )
    noise = torch.ones(1, 64, dtype=torch.bfloat16)
    plain = sample(model, noise)

    loaded.add_lora(adapter, name="style", scale=0.8)
    print("with the adapter it differs:", not torch.equal(sample(model, noise), plain))
    loaded.set_lora("style", 0.0)
    print("without it is the same:", torch.equal(sample(model, noise), plain))

    print(f"{loaded.stats()['weight_memory_bytes']} bytes of weights")
    loaded.close()  # Another model is wanted: this one can be loaded again later.


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
