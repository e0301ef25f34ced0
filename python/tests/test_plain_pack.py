"""Packs are read by their document alone, and hold what their sources hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from conftest import run_cli
from plain_pack import read_pack, read_safetensors, read_source

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


def test_it_needs_no_plan(checkpoint: Path, tmp_path: Path) -> None:
    run_cli("repack", checkpoint, "-o", tmp_path / "pack", "--reserve", "0")
    (tmp_path / "pack" / "plan.toml").unlink()
    assert read_pack(tmp_path / "pack") == read_safetensors(checkpoint)


@pytest.mark.parametrize("name", ["manifest.json", "base-00001.safetensors"])
def test_damage_is_refused(tmp_path: Path, name: str) -> None:
    pack = tmp_path / "pack"
    shutil.copytree(GOLDEN / "v1_raw.panda", pack)
    data = bytearray((pack / name).read_bytes())
    data[-8 if name.endswith("safetensors") else data.index(b"shape") + 8] ^= 1
    (pack / name).write_bytes(data)
    with pytest.raises(ValueError, match="checksum"):
        read_pack(pack)


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


def test_golden_pack_says_what_the_source_said() -> None:
    metadata, index = read_source(GOLDEN / "v1_index.panda")
    assert metadata == {
        "unet-00001-of-00002.safetensors": {"format": "pt"},
        "unet-00002-of-00002.safetensors": {},
    }
    source = json.loads((GOLDEN / "source_index/unet.safetensors.index.json").read_text())
    del source["weight_map"]
    assert index == {"unet.safetensors.index.json": source}
    assert read_source(GOLDEN / "v1_exponent.panda")[1] is None
    assert read_source(GOLDEN / "v1_raw.panda")[0] == {"source.safetensors": None}


def test_an_unpacked_checkpoint_has_the_index_of_its_source(tmp_path: Path) -> None:
    run_cli("repack", GOLDEN / "source_index", "-o", tmp_path / "pack", "--reserve", "0")
    run_cli("unpack", tmp_path / "pack", "-o", tmp_path / "out", "--reserve", "0")
    names = sorted(path.name for path in (GOLDEN / "source_index").iterdir())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    for name in names:
        unpacked = (tmp_path / "out" / name).read_bytes()
        assert unpacked == (GOLDEN / "source_index" / name).read_bytes()
