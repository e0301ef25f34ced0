"""What the earlier library got wrong, and no other test here covers. See docs/python.md."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trash_panda
from conftest import PackFactory
from models import WIDTH, Tower, assert_bit_equal, build, on_meta, tokens
from trash_panda import Hardware, Tier, plan, stream_load


def tower() -> Tower:
    return Tower(4)


class Scaled(nn.Module):
    """Has a parameter that is called like the scale of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.weight_scale = nn.Parameter(torch.randn(WIDTH))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden @ self.weight * self.weight_scale


class ScaledTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Scaled() for _ in range(4))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def test_a_parameter_called_like_a_scale_is_kept(packs: PackFactory) -> None:
    resident = build(ScaledTower)
    model = on_meta(ScaledTower)
    stream_load(model, packs.checkpoint(resident.state_dict()), disk_prefixes=["layers."])
    hidden = torch.linspace(-1, 1, WIDTH)[None].to(torch.bfloat16)
    assert_bit_equal(model(hidden), resident.to(torch.bfloat16)(hidden))


def test_less_vram_than_the_headroom_is_no_budget_of_nothing(packs: PackFactory) -> None:
    checkpoint = packs.checkpoint(build(tower).state_dict())
    machine = Hardware(12 * 10**9, 12 * 10**9, 32 * 10**9, 32 * 10**9, "a GPU")
    assert len(plan(None, checkpoint, hardware=machine, max_vram="1GB").resident) == 4


def test_plan_takes_a_key_map(packs: PackFactory) -> None:
    state = {f"net.{name}": value for name, value in build(tower).state_dict().items()}
    # So that no prefix can be guessed.
    state = {name.replace("layers", "blocks"): value for name, value in state.items()}
    checkpoint = packs.checkpoint(state)
    model = on_meta(tower)
    assert any("lacks" in warning for warning in plan(model, checkpoint).warnings)

    def rename(key: str) -> str:
        return key.removeprefix("net.").replace("blocks", "layers")

    planned = plan(model, checkpoint, key_map=rename)
    assert planned.warnings == []
    planned.assign(Tier.DISK, prefixes=["net.blocks.1"])
    stream_load(model, checkpoint, plan=planned, key_map=rename)
    assert_bit_equal(model(tokens()), build(tower).to(torch.bfloat16)(tokens()))


def header(entries: dict[str, object]) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-7])


def huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 10**12) + b"{}")


def shard_outside(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    names = dict.fromkeys(build(tower).state_dict(), "../outside.safetensors")
    index = {"metadata": {}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def two_variants(folder: Path) -> None:
    file = folder / "model.safetensors"
    (folder / "diffusion_pytorch_model.fp16.safetensors").write_bytes(file.read_bytes())
    file.rename(folder / "diffusion_pytorch_model.bf16.safetensors")


def unknown_dtype(folder: Path) -> None:
    entry = {"dtype": "Q4_X", "shape": [64], "data_offsets": [0, 32]}
    (folder / "model.safetensors").write_bytes(header({"layers.0.w": entry}) + bytes(32))


@pytest.mark.parametrize(
    "spoil", [truncate, huge_header, shard_outside, two_variants, unknown_dtype]
)
def test_a_bad_checkpoint_is_refused_when_it_is_planned(
    packs: PackFactory, spoil: Callable[[Path], None]
) -> None:
    folder = packs.checkpoint(build(tower).state_dict())
    spoil(folder)
    model = on_meta(tower)
    for use in (lambda: plan(model, folder), lambda: stream_load(model, folder)):
        with pytest.raises(trash_panda.TrashPandaError, match=str(folder)):
            use()
    assert all(parameter.is_meta for parameter in model.parameters())


def test_residents_are_spread_among_the_streamed(packs: PackFactory) -> None:
    checkpoint = packs.checkpoint(build(lambda: Tower(12)).state_dict())
    machine = Hardware(12 * 10**9, 12 * 10**9, 32 * 10**9, 32 * 10**9, "a GPU")
    planned = plan(None, checkpoint, hardware=machine, resident_blocks=6)
    tiers = [block.tier for block in planned.blocks]
    changes = sum(left != right for left, right in itertools.pairwise(tiers))
    assert changes >= 6
