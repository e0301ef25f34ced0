"""Prefixes that only one of checkpoint and model has."""

from __future__ import annotations

import pytest

from trash_panda._names import NameMap, listed

BARE = ["embed.weight", "layer.0.up.weight", "layer.1.up.weight"]
PREFIXED = [f"bert.{name}" for name in BARE]


def same(names: list[str]) -> dict[str, str]:
    """Every name stands for the tensor of that name."""
    return {name: name for name in names}


def test_equal_names_stand_for_themselves() -> None:
    names = NameMap(same(BARE), BARE)
    assert [names.find(name) for name in BARE] == BARE
    assert names.module_paths("layer.0") == ["layer.0"]


def test_a_prefix_of_the_checkpoint_is_added() -> None:
    names = NameMap(same([*PREFIXED, "head.weight"]), BARE)
    assert [names.find(name) for name in BARE] == PREFIXED
    assert names.module_paths("bert.layer.0") == ["bert.layer.0", "layer.0"]


def test_a_prefix_of_the_model_is_removed() -> None:
    names = NameMap(same(BARE), [*PREFIXED, "head.weight"])
    assert [names.find(name) for name in PREFIXED] == BARE
    assert names.find("head.weight") is None
    assert names.module_paths("layer.0") == ["layer.0", "bert.layer.0"]


def test_an_alias_stands_for_the_stored_tensor() -> None:
    names = NameMap({"embed.weight": "embed.weight", "head.weight": "embed.weight"}, BARE)
    assert names.find("head.weight") == "embed.weight"


def test_aliases_carry_prefixes_too() -> None:
    stored = {**same(PREFIXED), "bert.head.weight": "bert.embed.weight"}
    names = NameMap(stored, [*BARE, "head.weight"])
    assert names.find("head.weight") == "bert.embed.weight"


def test_two_parts_that_fit_equally_well_are_not_guessed() -> None:
    stored = [f"{part}.{name}" for part in ("text", "vision") for name in BARE]
    names = NameMap(same(stored), BARE)
    assert [names.find(name) for name in BARE] == [None] * 3


@pytest.mark.parametrize("stored", [[], ["other.weight"]])
def test_nothing_in_common_finds_nothing(stored: list[str]) -> None:
    names = NameMap(same(stored), BARE)
    assert [names.find(name) for name in BARE] == [None] * 3


def test_one_name_is_not_its_letters() -> None:
    assert listed("head.") == listed(["head."]) == ("head.",)
    assert listed(()) == ()
