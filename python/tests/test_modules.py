"""Modules and calls of every kind: nested blocks, several groups, RNNs, compiled blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trash_panda
from conftest import PackFactory, run_cli
from models import WIDTH, Layer, Tower, assert_bit_equal, build, on_meta, tokens

LAYERS = 4


def hidden_input() -> Tensor:
    return torch.linspace(-1, 1, 3 * WIDTH).reshape(1, 3, WIDTH).to(torch.bfloat16)


class Recurrent(nn.Module):
    """Computes with a list of its weights that the module keeps beside its parameters."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.start = kind(WIDTH, WIDTH, num_layers=2)
        self.layers = nn.ModuleList(
            kind(WIDTH, WIDTH // 2, num_layers=2, bidirectional=True) for _ in range(LAYERS)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        hidden, _ = self.start(hidden)
        for layer in self.layers:
            hidden, _ = layer(hidden)  # A tuple, with another one in it.
        return hidden


@pytest.mark.parametrize("tier", ["disk", "ram"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_stream(packs: PackFactory, kind: type[nn.RNNBase], tier: str) -> None:
    def make() -> Recurrent:
        return Recurrent(kind)

    resident = build(make)
    pack = packs.pack(packs.checkpoint(resident.state_dict()), tiers=[tier] * LAYERS)
    expected = resident.to(torch.bfloat16)(hidden_input())
    model = on_meta(make)
    with trash_panda.load(pack, model, lookahead=1) as offloaded:
        for _ in range(2):
            assert_bit_equal(model(hidden_input()), expected)
        assert offloaded.stats()["mispredict_count"] == 0
        with pytest.raises(trash_panda.TrashPandaError, match="not in memory"):
            model.layers[0]._flat_weights[0].sum()
    with pytest.raises(trash_panda.ReleasedError):
        model.start(hidden_input())


class Nested(nn.Module):
    """A layer with weights of its own around a list of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(WIDTH, WIDTH)
        self.inner = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.scale(hidden)
        for layer in self.inner:
            hidden = layer(hidden)
        return self.scale(hidden)


class NestedTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(Nested() for _ in range(3))

    def forward(self, hidden: Tensor) -> Tensor:
        for stage in self.stages:
            hidden = stage(hidden)
        return hidden


@pytest.mark.parametrize("groups", [["stages"], [f"stages.{i}.inner" for i in range(3)]])
def test_nested_blocks_stream(packs: PackFactory, groups: list[str]) -> None:
    resident = build(NestedTower)
    checkpoint = packs.checkpoint(resident.state_dict())
    plan, pack = packs.folder / "plan.toml", packs.folder / "nested.panda"
    run_cli("plan", checkpoint, "-o", plan, *(f"--group={group}" for group in groups))
    plan.write_text(plan.read_text().replace('tier = "ram"', 'tier = "disk"'))
    run_cli("repack", checkpoint, "--plan", plan, "-o", pack)
    model = on_meta(NestedTower)
    expected = resident.to(torch.bfloat16)(hidden_input())
    with trash_panda.load(pack, model, lookahead=1):
        for _ in range(2):
            assert_bit_equal(model(hidden_input()), expected)
        inner = model.stages[0].inner[0]
        assert inner.up.weight.is_meta


class Both(nn.Module):
    """Two lists of layers; the second one runs more often."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.decoder = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, hidden: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        for layer in self.encoder:
            hidden = layer(hidden)
        first = hidden
        for _ in range(3):
            for layer in self.decoder:
                hidden = layer(hidden)
        return hidden, {"first": first}


def test_groups_that_run_more_often_than_others(packs: PackFactory) -> None:
    resident = build(Both)
    pack = packs.pack(packs.checkpoint(resident.state_dict()), tiers=["disk"] * 2 * LAYERS)
    model = on_meta(Both)
    last, rest = resident.to(torch.bfloat16)(hidden_input())
    with trash_panda.load(pack, model):
        for _ in range(2):
            ours, others = model(hidden_input())
            assert_bit_equal(ours, last)
            assert_bit_equal(others["first"], rest["first"])


@pytest.fixture(scope="module")
def tower_pack(shared_packs: PackFactory) -> Path:
    state = build(lambda: Tower(LAYERS)).state_dict()
    return shared_packs.pack(shared_packs.checkpoint(state), tiers=["disk", "ram"] * 2)


def test_blocks_in_wrappers_of_the_compiler_are_found(tower_pack: Path) -> None:
    """torch.compile(module) makes another module around it, which changes all names."""
    resident = build(lambda: Tower(LAYERS)).to(torch.bfloat16)
    model = on_meta(lambda: Tower(LAYERS))
    for index, layer in enumerate(model.layers):
        model.layers[index] = torch.compile(layer, backend="eager")
    torch._dynamo.reset()
    try:
        for whole in (model, torch.compile(on_meta(lambda: Tower(LAYERS)), backend="eager")):
            with torch.no_grad(), trash_panda.load(tower_pack, whole) as offloaded:
                assert len(offloaded.stream.blocks) == LAYERS
                for _ in range(2):
                    assert_bit_equal(whole(tokens()), resident(tokens()))
    finally:
        torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("compiled", ["before load", "after load", "whole model"])
def test_compiled_blocks_stream(tower_pack: Path, compiled: str, backend: str) -> None:
    resident = build(lambda: Tower(LAYERS)).to(torch.bfloat16)
    model = on_meta(lambda: Tower(LAYERS))
    graphs: list[object] = []

    def count(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> object:
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    def compile_all() -> None:
        for layer in [model] if compiled == "whole model" else model.layers:
            layer.compile(backend=count)

    torch._dynamo.reset()
    try:
        if compiled == "before load":
            compile_all()
        with torch.no_grad(), trash_panda.load(tower_pack, model):
            if compiled != "before load":
                compile_all()
            for _ in range(3):
                assert_bit_equal(model(tokens()), resident(tokens()))
            assert graphs
            assert all(parameter.is_meta for parameter in model.layers.parameters())
            made = len(graphs)
            model(tokens())
            assert len(graphs) == made  # Other slots are no reason to compile again.
    finally:
        torch._dynamo.reset()
