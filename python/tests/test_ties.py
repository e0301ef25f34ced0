"""Tied weights: one stored tensor, every name of it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import trash_panda
from conftest import PackFactory
from models import Tower, assert_bit_equal, build, on_meta, tokens


def tied_tower() -> Tower:
    return Tower(6, tied=True)


def stored(*names: str) -> dict[str, Tensor]:
    """The tied tower's tensors, with the shared one under these names only."""
    state = build(tied_tower).state_dict()
    shared = state.pop("head.weight")
    del state["embed.weight"]
    return state | {name: shared.clone() for name in names}


@pytest.mark.parametrize(
    "names", [("embed.weight",), ("head.weight",), ("embed.weight", "head.weight")], ids="+".join
)
def test_both_names_get_the_stored_one(packs: PackFactory, names: tuple[str, ...]) -> None:
    pack = packs.pack(packs.checkpoint(stored(*names)))
    model = on_meta(tied_tower)
    with trash_panda.load(pack, model):
        assert model.head.weight is model.embed.weight
        assert_bit_equal(model(tokens()), build(tied_tower).to(torch.bfloat16)(tokens()))


def test_a_tied_weight_that_is_nowhere_is_named(packs: PackFactory) -> None:
    pack = packs.pack(packs.checkpoint(stored()))
    model = on_meta(tied_tower)
    with pytest.raises(trash_panda.MissingTensorsError) as caught:
        trash_panda.load(pack, model)
    assert caught.value.names == ("embed.weight", "head.weight")
    assert "embed.weight" in str(caught.value)
    assert model.embed.weight.is_meta


def test_an_untied_model_gets_the_alias_of_the_pack(packs: PackFactory) -> None:
    pack = packs.pack(packs.checkpoint(stored("embed.weight", "head.weight")))
    model = on_meta(lambda: Tower(6))
    with trash_panda.load(pack, model):
        assert_bit_equal(model(tokens()), build(tied_tower).to(torch.bfloat16)(tokens()))


def test_a_checkpoint_that_stores_both_differently_unties(packs: PackFactory) -> None:
    state = stored("embed.weight", "head.weight")
    state["head.weight"] = state["head.weight"] + 1
    resident = build(lambda: Tower(6))
    resident.load_state_dict(state)
    model = on_meta(tied_tower)
    with trash_panda.load(packs.pack(packs.checkpoint(state)), model):
        assert_bit_equal(model(tokens()), resident.to(torch.bfloat16)(tokens()))
