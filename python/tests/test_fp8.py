"""fp8 checkpoints: every granularity, one formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import trash_panda
from conftest import PackFactory
from models import assert_bit_equal, on_meta

LAYERS = 4
ROWS, COLUMNS, TILE, GROUP = 192, 160, 128, 32


class Model(nn.Module):
    """Its layers are mere containers, so that their parts are what is called."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict({"proj": nn.Linear(COLUMNS, ROWS)}) for _ in range(LAYERS)
        )


def expand(scale: Tensor, granularity: str) -> Tensor:
    """The scale of each element."""
    if granularity == "mx":  # Exponent codes: that of a normal number is its exponent field.
        factors = (scale.to(torch.int32) << 23).view(torch.float32)
        return factors.repeat_interleave(GROUP, 1)
    if granularity != "block":
        return scale
    rows = scale.repeat_interleave(TILE, 0)[:ROWS]
    return rows.repeat_interleave(TILE, 1)[:, :COLUMNS]


def scale_shape(granularity: str) -> tuple[int, ...]:
    tiles = (-(-ROWS // TILE), -(-COLUMNS // TILE))
    return {"tensor": (), "channel": (ROWS, 1), "block": tiles}[granularity]


def checkpoint(granularity: str, fp8: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Any]]:
    generator = torch.Generator().manual_seed(11)
    suffix = "weight_scale_inv" if granularity == "block" else "weight_scale"
    state = {}
    for index in range(LAYERS):
        name = f"layers.{index}.proj"
        weight = torch.randn(ROWS, COLUMNS, generator=generator) * 8
        weight[0, :3] = torch.tensor([float("nan"), 0.0, -0.0])
        state[f"{name}.weight"] = weight.to(fp8)
        if granularity == "mx":
            shape = (ROWS, COLUMNS // GROUP)
            codes = torch.randint(110, 140, shape, generator=generator, dtype=torch.uint8)
            state[f"{name}.{suffix}"] = codes
        else:
            state[f"{name}.{suffix}"] = torch.rand(scale_shape(granularity), generator=generator)
        state[f"{name}.bias"] = torch.randn(ROWS, generator=generator)
    config = {}
    if granularity == "block":
        config["quantization_config"] = {
            "quant_method": "fp8",
            "weight_block_size": [TILE, TILE],
        }
    if granularity == "mx":
        config["quantization_config"] = {
            "quant_method": "compressed-tensors",
            "format": "mxfp8-quantized",
        }
    return state, config


def one_nan(tensor: Tensor) -> Tensor:
    """Which bits a NaN has after rounding differs between torch's own code paths."""
    return torch.where(tensor.isnan(), torch.full_like(tensor, float("nan")), tensor)


@pytest.mark.parametrize("tier", ["disk", "ram"])
@pytest.mark.parametrize("fp8", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("granularity", ["tensor", "channel", "block", "mx"])
def test_expands_by_the_formula(
    packs: PackFactory, granularity: str, fp8: torch.dtype, tier: str
) -> None:
    state, config = checkpoint(granularity, fp8)
    pack = packs.pack(packs.checkpoint(state, config), tiers=[tier] * LAYERS)
    model = on_meta(Model)
    weights: dict[int, Tensor] = {}
    for index, layer in enumerate(model.layers):
        layer["proj"].register_forward_pre_hook(
            lambda module, args, index=index: weights.update({index: module.weight.clone()})
        )
    suffix = "weight_scale_inv" if granularity == "block" else "weight_scale"
    with trash_panda.load(pack, model):
        for _ in range(2):
            for index, layer in enumerate(model.layers):
                layer["proj"](torch.zeros(1, COLUMNS, dtype=torch.bfloat16))
                name = f"layers.{index}.proj"
                scale = expand(state[f"{name}.{suffix}"], granularity)
                expected = (state[f"{name}.weight"].to(torch.float32) * scale).to(torch.bfloat16)
                assert_bit_equal(one_nan(weights[index]), one_nan(expected))


def test_keep_expands_fp8_to_what_the_model_declares(packs: PackFactory) -> None:
    state, config = checkpoint("tensor", torch.float8_e4m3fn)
    pack = packs.pack(packs.checkpoint(state, config), compute_dtype="keep")
    model = on_meta(lambda: Model().to(torch.float16))
    with trash_panda.load(pack, model):
        assert model.layers[0]["proj"].weight.dtype == torch.float16
        assert model.layers[0]["proj"].bias.dtype == torch.float32
