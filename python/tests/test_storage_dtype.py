"""storage_dtype: blocks that wait in another dtype than the checkpoint's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import trash_panda
from conftest import PackFactory
from models import Tower, assert_bit_equal, build, on_meta, tokens
from trash_panda import Plan, Tier, expand, install_offload, plan, quantize_fp8, stream_load

LAYERS = 4


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture
def checkpoint(packs: PackFactory) -> Path:
    return packs.checkpoint(build(tower).state_dict(), {"hidden_size": 64})


def quantized() -> nn.Module:
    """The model with the weights that fp8 leaves of its blocks."""
    resident = build(tower)
    for layer in resident.layers:
        for part in (layer.up, layer.down):
            codes, scale = quantize_fp8(part.weight)
            part.weight.data = expand(codes, scale, torch.bfloat16).float()
    return resident.to(torch.bfloat16)


def run(checkpoint: Path, made: Plan | None, **options: object) -> torch.Tensor:
    model = on_meta(tower)
    stream_load(model, checkpoint, made, **options)
    handle = install_offload(model)
    try:
        return model(tokens())
    finally:
        handle.remove()


def test_fp8_is_what_the_formula_gives(checkpoint: Path) -> None:
    made = plan(None, checkpoint, storage_dtype="fp8")
    plain = plan(None, checkpoint)
    sizes = [sum(block.stored_bytes for block in each.blocks) for each in (made, plain)]
    assert sizes[0] < 0.3 * sizes[1]
    made.assign(Tier.DISK, indices=[1, 2])
    expected = quantized()(tokens())
    assert_bit_equal(run(checkpoint, made), expected)
    # The earlier library's spelling: the plan by hand, the dtype in either call.
    by_hand = Plan.manual(streamed=[f"layers.{n}" for n in range(LAYERS)], storage_dtype="fp8")
    assert_bit_equal(run(checkpoint, by_hand), expected)
    assert_bit_equal(run(checkpoint, None, storage_dtype=torch.float8_e4m3fn), expected)
    # And as the checkpoint has it, beside that.
    assert_bit_equal(run(checkpoint, None), build(tower).to(torch.bfloat16)(tokens()))


def test_only_weights_of_blocks_are_quantized(checkpoint: Path) -> None:
    from safetensors.torch import load_file

    plan(None, checkpoint, storage_dtype="fp8")
    copy = checkpoint.with_name(checkpoint.name + ".fp8")
    found: dict[str, torch.Tensor] = {}
    for shard in copy.glob("*.safetensors"):
        found |= load_file(shard)
    before = build(tower).state_dict()
    eighths = {name for name, tensor in found.items() if tensor.dtype == torch.float8_e4m3fn}
    assert eighths == {f"layers.{n}.{p}.weight" for n in range(LAYERS) for p in ("up", "down")}
    assert found.keys() - before.keys() == {f"{name}_scale" for name in eighths}
    for name in before.keys() - eighths:
        assert_bit_equal(found[name], before[name])
    assert json.loads((copy / "config.json").read_text()) == {"hidden_size": 64}


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_other_dtypes_are_casts(checkpoint: Path, dtype: str) -> None:
    made = plan(None, checkpoint, storage_dtype=dtype, compute_dtype="fp32")
    resident = build(tower)
    resident.layers.to(trash_panda.parse_dtype(dtype)).to(torch.float32)
    assert_bit_equal(run(checkpoint, made), resident(tokens()))


def test_the_copy_is_made_once_and_again_when_the_checkpoint_changes(
    packs: PackFactory, checkpoint: Path
) -> None:
    copy = checkpoint.with_name(checkpoint.name + ".fp8")
    plan(None, checkpoint, storage_dtype="fp8")
    first = (copy / "model.safetensors.index.json").stat().st_ino
    plan(None, checkpoint, storage_dtype="fp8")
    assert (copy / "model.safetensors.index.json").stat().st_ino == first
    other = packs.checkpoint(build(lambda: Tower(LAYERS + 1)).state_dict())
    (other / "model.safetensors").replace(checkpoint / "model.safetensors")
    assert len(plan(None, checkpoint, storage_dtype="fp8").blocks) == LAYERS + 1
    assert [path.name for path in checkpoint.parent.glob("*.fp8*")] == [copy.name]


def test_nothing_is_copied_that_is_so_already(packs: PackFactory) -> None:
    state = {name: t.to(torch.bfloat16) for name, t in build(tower).state_dict().items()}
    checkpoint = packs.checkpoint(state)
    plan(None, checkpoint, storage_dtype="bf16")
    assert not checkpoint.with_name(checkpoint.name + ".bf16").exists()


def test_what_is_in_the_way_is_not_touched(checkpoint: Path) -> None:
    copy = checkpoint.with_name(checkpoint.name + ".fp8")
    copy.mkdir()
    (copy / "mine").write_text("keep")
    with pytest.raises(trash_panda.CheckpointError, match="in the way"):
        plan(None, checkpoint, storage_dtype="fp8")
    assert (copy / "mine").read_text() == "keep"
