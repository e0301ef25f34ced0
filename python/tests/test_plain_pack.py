"""Packs are read by their document alone, and hold what their sources hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from conftest import run_cli
from plain_pack import read_pack, read_safetensors

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "format" / "golden"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for layer in range(3):
        weight = torch.randn(129, 520, generator=generator) * 0.02
        tensors[f"layers.{layer}.w"] = weight.to(torch.bfloat16)
        tensors[f"layers.{layer}.norm"] = torch.ones(77, dtype=torch.bfloat16)
        tensors[f"layers.{layer}.f32"] = torch.randn(70, 130, generator=generator)
        noise = torch.randint(-(2**15), 2**15, (16_400,), generator=generator, dtype=torch.int16)
        tensors[f"layers.{layer}.noise"] = noise.view(torch.bfloat16)
    path = tmp_path_factory.mktemp("plain") / "model.safetensors"
    save_file(tensors, path)
    return path


@pytest.mark.parametrize("compress", ["none", "exponent", "max"])
def test_it_holds_the_source(checkpoint: Path, tmp_path: Path, compress: str) -> None:
    run_cli("repack", checkpoint, "-o", tmp_path / "pack", "--compress", compress, "--reserve", "0")
    assert read_pack(tmp_path / "pack") == read_safetensors(checkpoint)


def test_golden_packs_hold_their_sources() -> None:
    raw = read_pack(GOLDEN / "v1_raw.panda")
    source = read_safetensors(GOLDEN / "source.safetensors")
    for name, tensor in source.items():
        if not name.endswith("_scale_inv"):
            assert raw[name].data == tensor.data
    assert raw["head.weight"] == raw["embed.weight"]
    for name in ("exponent", "zstd"):
        coded = read_pack(GOLDEN / f"v1_{name}.panda")
        assert coded == read_safetensors(GOLDEN / f"source_{name}.safetensors")
