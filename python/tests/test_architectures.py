"""Architectures of transformers, tiny and random: streamed equals resident, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import trash_panda
from architectures import ARCHITECTURES, Architecture, build, outputs
from conftest import PackFactory, write_tiers
from models import assert_bit_equal, on_meta


@pytest.fixture(scope="module", params=ARCHITECTURES.values(), ids=ARCHITECTURES.keys())
def architecture(request: pytest.FixtureRequest) -> Architecture:
    chosen: Architecture = request.param
    if not hasattr(pytest.importorskip("transformers"), chosen.cls):
        pytest.skip(f"this transformers has no {chosen.cls}")
    return chosen


@pytest.fixture(scope="module")
def saved(architecture: Architecture, shared_packs: PackFactory) -> Path:
    """The checkpoint as transformers writes it, with the names of its original authors."""
    folder = shared_packs.folder / architecture.cls
    build(architecture).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pack(saved: Path, shared_packs: PackFactory) -> Path:
    return shared_packs.pack(saved)


@pytest.fixture(scope="module")
def resident(architecture: Architecture, saved: Path) -> nn.Module:
    model = type(on_meta(architecture.make))
    return model.from_pretrained(saved, dtype=torch.bfloat16).eval()


@pytest.mark.parametrize("tiers", ["disk", "ram", "mixed"])
def test_equals_from_pretrained(
    architecture: Architecture, pack: Path, resident: nn.Module, tmp_path: Path, tiers: str
) -> None:
    count = (pack / "plan.toml").read_text().count("[[block]]")
    assert count >= 2
    each = {"disk": ["disk"], "ram": ["ram"], "mixed": ["disk", "ram"]}[tiers]
    plan = write_tiers(pack / "plan.toml", (each * count)[:count], tmp_path / "plan.toml")
    model = on_meta(architecture.make)
    expected = outputs(resident, architecture.inputs())
    with trash_panda.load(pack, model, plan=plan) as offloaded:
        assert offloaded.unexpected == []
        for _ in range(2):
            actual = outputs(model, architecture.inputs())
            assert len(actual) == len(expected) > 0
            for ours, theirs in zip(actual, expected, strict=True):
                assert_bit_equal(ours, theirs)


def test_generates_the_same_tokens(
    architecture: Architecture, pack: Path, resident: nn.Module
) -> None:
    if not architecture.generates:
        return  # It has no generate(), or none that starts from tokens.
    inputs = {"input_ids": architecture.inputs()["input_ids"]}
    arguments = {**inputs, "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    model = on_meta(architecture.make)
    with trash_panda.load(pack, model):
        assert torch.equal(model.generate(**arguments), resident.generate(**arguments))
