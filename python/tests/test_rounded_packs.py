"""What `repack --dtype` stores is what torch makes of the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from conftest import run_cli
from plain_pack import read_pack
from trash_panda import quantize_fp8

DTYPES = {"BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn, "F32": torch.float32}


def make_weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    wide = torch.randn(130, 1030, generator=generator) * 0.02
    wide[0, :4] = torch.tensor([0.0, -0.0, 1e-30, -1e-9])
    return {
        "layers.0.f32.weight": wide,
        "layers.0.f16.weight": (wide * 3).to(torch.float16),
        "layers.0.bf16.weight": (wide * 5).to(torch.bfloat16),
        "layers.0.zero.weight": torch.zeros(64, 64, dtype=torch.float16),
        "layers.0.norm.weight": torch.randn(8192, generator=generator),
    }


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rounded") / "model.safetensors"
    save_file(make_weights(), path)
    return path


def packed(checkpoint: Path, pack: Path, dtype: str) -> dict[str, torch.Tensor]:
    run_cli("repack", checkpoint, "-o", pack, "--dtype", dtype, "--reserve", "0")
    run_cli("verify", pack, "--source", checkpoint)
    return {
        name: torch.frombuffer(bytearray(tensor.data), dtype=DTYPES[tensor.dtype]).reshape(
            tensor.shape
        )
        for name, tensor in read_pack(pack).items()
        if tensor.dtype in DTYPES
    }


def test_bf16_is_rounded_as_torch_does_it(checkpoint: Path, tmp_path: Path) -> None:
    found = packed(checkpoint, tmp_path / "pack", "bf16")
    for name, weight in make_weights().items():
        expected = weight if name.endswith("norm.weight") else weight.to(torch.bfloat16)
        assert torch.equal(found[name], expected), name


def test_fp8_is_what_quantize_fp8_makes(checkpoint: Path, tmp_path: Path) -> None:
    found = packed(checkpoint, tmp_path / "pack", "fp8")
    for name, weight in make_weights().items():
        if name.endswith("norm.weight"):
            assert torch.equal(found[name], weight)
            continue
        codes, scale = quantize_fp8(weight)
        assert torch.equal(found[f"{name}_scale"], scale), name
        assert torch.equal(found[name].view(torch.uint8), codes.view(torch.uint8)), name
