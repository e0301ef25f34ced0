"""The three steps of the earlier library, with a plan that is edited between them.

    python three_steps.py

Makes a small model and its checkpoint on the spot.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from trash_panda import Tier, install_offload, plan, release, stream_load


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(64, 128)
        self.down = nn.Linear(128, 64)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down(self.up(hidden).relu())


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Layer() for _ in range(8))

    def forward(self, hidden: Tensor) -> Tensor:
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


def main(folder: Path) -> None:
    checkpoint = folder / "model.safetensors"
    save_file(Model().state_dict(), checkpoint)

    with torch.device("meta"):  # The structure only, no weights in memory.
        model = Model().eval()
    p = plan(model, checkpoint, max_ram="2GB")
    p.assign(Tier.DISK, indices=[3, 7])
    print(p)
    print(stream_load(model, checkpoint, plan=p))
    handle = install_offload(model)

    with torch.no_grad():
        print(model(torch.ones(1, 64, dtype=torch.bfloat16)).float().sum())
    print(release(model, handle))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
