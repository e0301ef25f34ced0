"""What a block hands back needs none of its weights: no gradient, no memory of theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import trash_panda
from conftest import PackFactory
from models import Tower, assert_bit_equal, build, on_meta, tokens

LAYERS = 6
NO_TRAINING = r"block layers\.0 .*torch\.no_grad\(\)"


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture(scope="module")
def pack(shared_packs: PackFactory) -> Path:
    return shared_packs.pack(shared_packs.checkpoint(build(tower).state_dict()))


def plainly(model: nn.Module, hidden: Tensor) -> None:
    model.layers[0](hidden)


def checkpointed(model: nn.Module, hidden: Tensor) -> None:
    for layer in model.layers:
        hidden = checkpoint(layer, hidden, use_reentrant=False)


def checkpointed_reentrant(model: nn.Module, hidden: Tensor) -> None:
    checkpoint(model.layers[0], hidden, use_reentrant=True).sum().backward()


def with_saved_tensors_elsewhere(model: nn.Module, hidden: Tensor) -> None:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        model.layers[0](hidden)


def with_grad_inside_only(model: nn.Module, hidden: Tensor) -> None:
    layer = model.layers[0]
    layer.forward = torch.enable_grad()(layer.forward)
    try:
        with torch.no_grad():
            layer(hidden)
    finally:
        del layer.forward


@pytest.mark.parametrize(
    "train",
    [
        plainly,
        checkpointed,
        checkpointed_reentrant,
        with_saved_tensors_elsewhere,
        with_grad_inside_only,
    ],
)
def test_training_through_streamed_weights_is_refused(
    pack: Path, train: Callable[[nn.Module, Tensor], None]
) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        hidden = torch.zeros(1, 64, dtype=torch.bfloat16, requires_grad=True)
        with pytest.raises(trash_panda.TrashPandaError, match=NO_TRAINING):
            train(model, hidden)
        assert all(parameter.is_meta for parameter in model.layers.parameters())
        assert_bit_equal(model(tokens()), build(tower).to(torch.bfloat16)(tokens()))
        with torch.no_grad():
            assert not model.layers[0](hidden).requires_grad


def test_backward_through_what_a_block_keeps_is_refused(pack: Path) -> None:
    model = on_meta(tower)
    layer = model.layers[0]
    kept: list[Tensor] = []

    def forward(hidden: Tensor) -> Tensor:
        kept.append(type(layer).forward(layer, hidden))
        return kept[0].detach()

    layer.forward = forward
    with trash_panda.load(pack, model):
        layer(torch.zeros(1, 64, dtype=torch.bfloat16, requires_grad=True))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            kept[0].sum().backward()


class Pair(NamedTuple):
    hidden: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Record:
    hidden: Tensor
    weight: Tensor


class Lending(nn.Module):
    """Hands back a weight of its own, or a view of one, in some container."""

    def __init__(self, wrap: Callable[[Tensor, Tensor], object]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.wrap = wrap

    def forward(self, hidden: Tensor) -> object:
        return self.wrap(hidden @ self.weight, self.weight)


class Lenders(nn.Module):
    def __init__(self, wrap: Callable[[Tensor, Tensor], object]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Lending(wrap) for _ in range(LAYERS))

    def forward(self, hidden: Tensor) -> list[object]:
        return [layer(hidden) for layer in self.layers]


def tensors_of(output: object) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Record):
        return [output.hidden, output.weight]
    values = output.values() if isinstance(output, dict) else output
    return [tensor for value in values for tensor in tensors_of(value)]


@pytest.mark.parametrize("tier", ["disk", "ram"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda hidden, weight: weight,
        lambda hidden, weight: weight.t()[3:],
        lambda hidden, weight: (hidden, weight[None].expand(2, -1, -1)),
        lambda hidden, weight: {"out": [hidden, {"deep": weight.view(-1)}]},
        Pair,
        Record,
    ],
)
def test_a_block_may_hand_back_its_weight(
    packs: PackFactory, tier: str, wrap: Callable[[Tensor, Tensor], object]
) -> None:
    resident = build(lambda: Lenders(wrap))
    pack = packs.pack(packs.checkpoint(resident.state_dict()), tiers=[tier] * LAYERS)
    hidden = torch.linspace(-1, 1, 128).reshape(2, 64).to(torch.bfloat16)
    model = on_meta(lambda: Lenders(wrap))
    expected = resident.to(torch.bfloat16)(hidden)
    with trash_panda.load(pack, model, lookahead=1):
        for _ in range(2):
            output = model(hidden)
            assert [type(each) for each in output] == [
                Tensor if isinstance(each, Tensor) else type(each) for each in expected
            ]
            pairs = zip(tensors_of(output), tensors_of(expected), strict=True)
            for actual, wanted in pairs:
                assert_bit_equal(actual, wanted)


def test_other_outputs_are_handed_on_as_they_are(pack: Path) -> None:
    model = on_meta(tower)
    endless: list[object] = [torch.zeros(2), {"n": 3}]
    endless.append(endless)
    model.layers[0].forward = lambda hidden: endless
    with trash_panda.load(pack, model):
        assert model.layers[0](torch.zeros(1, 64)) is endless
