"""Shards are safetensors files: the reference reader opens them, and finds the source's bytes."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from conftest import PackFactory
from models import Tower, assert_bit_equal, build


def read_shards(pack: Path) -> dict[str, Tensor]:
    """Every tensor of every shard, padding left out."""
    tensors: dict[str, Tensor] = {}
    for shard in sorted(pack.glob("*.safetensors")):
        with safe_open(shard, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - safe_open is no mapping.
                assert name not in tensors, f"{name} is in two shards"
                tensors[name] = file.get_tensor(name)
    names = {
        tensor["name"]
        for extent in json.loads((pack / "manifest.json").read_text())["extents"]
        for tensor in extent["tensors"]
    }
    padding = tensors.keys() - names
    assert all(tensors[name].dtype == torch.uint8 for name in padding)
    assert all(not tensors[name].any() for name in padding)
    return {name: tensors[name] for name in names}


def test_every_tensor_equals_the_source(packs: PackFactory) -> None:
    state = build(lambda: Tower(6)).state_dict()
    state["layers.2.up.weight"] = state["layers.2.up.weight"].to(torch.bfloat16)
    state["layers.3.step"] = torch.tensor(7)
    state["layers.4.mask"] = torch.tensor([True, False, True])
    state["head.scale"] = torch.tensor([0.5], dtype=torch.float64)
    checkpoint = packs.checkpoint(state)
    pack = packs.pack(checkpoint, tiers=["gpu", "ram", "disk"] * 2)
    shards = read_shards(pack)
    source = load_file(checkpoint / "model.safetensors")
    assert shards.keys() == source.keys()
    for name, tensor in source.items():
        assert_bit_equal(shards[name], tensor)
    assert {shard.name for shard in pack.glob("*.safetensors")} == {
        f"{tier}-00001.safetensors" for tier in ("base", "gpu", "ram", "disk")
    }
