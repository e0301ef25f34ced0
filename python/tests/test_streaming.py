"""Streamed equals resident, bit for bit, whatever the tiers."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import jsonschema
import pytest
import torch
from torch import nn

import trash_panda
from conftest import PackFactory, write_tiers
from models import Tower, assert_bit_equal, build, on_meta, tokens

BLOCK_COUNT = 24
# Made once: jsonschema.validate() would check the schema itself for each line.
RUN_LOG = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[2] / "schemas" / "run_log.schema.json").read_text())
)


def alternating(seed: int) -> list[str]:
    return random.Random(seed).choices(["gpu", "ram", "disk"], k=BLOCK_COUNT)


TIERS = {
    "disk": ["disk"] * BLOCK_COUNT,
    "ram": ["ram"] * BLOCK_COUNT,
    "gpu": ["gpu"] * BLOCK_COUNT,
    "one on disk": ["ram"] * 11 + ["disk"] + ["ram"] * 12,
    "one in ram": ["disk"] * 23 + ["ram"],
    "half": ["disk", "ram"] * 12,
    "mixed 1": alternating(1),
    "mixed 2": alternating(2),
}


@pytest.fixture(scope="module")
def resident() -> nn.Module:
    return build(Tower).to(torch.bfloat16)


@pytest.fixture(scope="module")
def pack(shared_packs: PackFactory) -> Path:
    return shared_packs.pack(
        shared_packs.checkpoint(build(Tower).state_dict()), tiers=TIERS["half"]
    )


@pytest.mark.parametrize("lookahead", [1, 3, 100, "40KB"])
@pytest.mark.parametrize("tiers", TIERS.values(), ids=TIERS.keys())
def test_equals_resident(
    tmp_path: Path, pack: Path, resident: nn.Module, tiers: list[str], lookahead: int | str
) -> None:
    plan = write_tiers(pack / "plan.toml", tiers, tmp_path / "plan.toml")
    model = on_meta(Tower)
    with trash_panda.load(pack, model, plan=plan, lookahead=lookahead) as offloaded:
        for _ in range(3):
            assert_bit_equal(model(tokens()), resident(tokens()))
        stats = offloaded.stats()
    assert stats["pass_count"] == 3
    assert stats["mispredict_count"] == 0
    assert (stats["pass_read_bytes_disk"] > 0) == ("disk" in tiers)
    assert stats["pass_read_bytes_ram"] == 0  # Kept since the first pass.


@pytest.mark.parametrize("compute_dtype", ["bf16", "fp16", "fp32", torch.float16])
def test_casts_to_the_compute_dtype(pack: Path, compute_dtype: str | torch.dtype) -> None:
    names = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    dtype = names.get(compute_dtype, compute_dtype)  # type: ignore[call-overload]
    expected = build(Tower).to(dtype)(tokens())
    model = on_meta(Tower)
    with trash_panda.load(pack, model, compute_dtype=compute_dtype) as offloaded:
        assert offloaded.dtype == dtype
        assert all(parameter.dtype == dtype for parameter in model.parameters())
        assert_bit_equal(model(tokens()), expected)


def test_keep_leaves_weights_as_stored(packs: PackFactory) -> None:
    source = build(Tower)
    source.layers[1].to(torch.float64)
    kept = packs.pack(packs.checkpoint(source.state_dict()), compute_dtype="keep")
    model = on_meta(Tower)
    seen = {}
    with trash_panda.load(kept, model) as offloaded:
        assert offloaded.dtype is None
        for index in (0, 1):
            layer = model.layers[index]
            layer.register_forward_hook(
                lambda module, args, output, index=index: seen.update({index: output.dtype})
            )
            hidden = torch.zeros(1, 64, dtype=torch.float64 if index else torch.float32)
            assert_bit_equal(layer(hidden), source.layers[index](hidden))
    assert seen == {0: torch.float32, 1: torch.float64}


def test_weights_take_memory_only_in_their_block(pack: Path) -> None:
    model = on_meta(Tower)
    during = []
    model.layers[5].up.register_forward_pre_hook(
        lambda module, args: during.append([layer.up.weight.is_meta for layer in model.layers])
    )
    with trash_panda.load(pack, model):
        model(tokens())
        assert during == [[index != 5 for index in range(BLOCK_COUNT)]]
        assert all(parameter.is_meta for parameter in model.layers.parameters())
        assert not model.embed.weight.is_meta


def test_memory_is_that_of_base_and_slots(pack: Path, tmp_path: Path) -> None:
    plan = write_tiers(pack / "plan.toml", TIERS["disk"], tmp_path / "plan.toml")
    model = on_meta(Tower)
    whole = sum(tensor.numel() * 2 for tensor in build(Tower).state_dict().values())
    with trash_panda.load(pack, model, plan=plan, lookahead=1) as offloaded:
        model(tokens())
        model(tokens())
        assert offloaded.stats()["weight_memory_bytes_max"] < whole / 2


def test_blocks_run_in_any_order(pack: Path, resident: nn.Module) -> None:
    model = on_meta(Tower)
    hidden = torch.randn(2, 64, generator=torch.manual_seed(3)).to(torch.bfloat16)
    with trash_panda.load(pack, model) as offloaded:
        for index in (7, 7, 3, 20, 0, 23):
            assert_bit_equal(model.layers[index](hidden), resident.layers[index](hidden))
        assert offloaded.stats()["mispredict_count"] > 0


def test_two_models_alternate(pack: Path, resident: nn.Module) -> None:
    first, second = on_meta(Tower), on_meta(Tower)
    with trash_panda.load(pack, first), trash_panda.load(pack, second):
        for _ in range(2):
            assert_bit_equal(first(tokens()), resident(tokens()))
            assert_bit_equal(second(tokens()), resident(tokens()))


@pytest.mark.parametrize("io", ["auto", "pread"])
def test_environment_chooses_how_shards_are_read(
    monkeypatch: pytest.MonkeyPatch, pack: Path, resident: nn.Module, io: str
) -> None:
    monkeypatch.setenv("TRASH_PANDA_IO", io)
    model = on_meta(Tower)
    with trash_panda.load(pack, model) as offloaded:
        assert_bit_equal(model(tokens()), resident(tokens()))
        assert offloaded.stats()["io_description"].startswith(
            "pread" if io == "pread" else ("io_uring", "pread")
        )


def test_environment_that_names_no_engine_is_refused(
    monkeypatch: pytest.MonkeyPatch, pack: Path
) -> None:
    monkeypatch.setenv("TRASH_PANDA_IO", "mmap")
    with pytest.raises(trash_panda.TrashPandaError, match='TRASH_PANDA_IO is "mmap"'):
        trash_panda.load(pack, on_meta(Tower))


def test_environment_names_a_run_log_for_each_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pack: Path
) -> None:
    monkeypatch.setattr("trash_panda._assemble._run_numbers", itertools.count(1))
    monkeypatch.setenv("TRASH_PANDA_LOG", str(tmp_path / "run.jsonl"))
    for _ in range(2):
        model = on_meta(Tower)
        with trash_panda.load(pack, model):
            model(tokens())
            model(tokens())
    for name in ("run.jsonl", "run.2.jsonl"):
        records = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for record in records:
            RUN_LOG.validate(record)
        assert records[0]["pack"] == str(pack)
        assert [r["pass"] for r in records if r["type"] == "pass"] == [1, 2]
        assert sum(r["type"] == "block" for r in records) == 2 * BLOCK_COUNT
