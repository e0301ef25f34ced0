"""Buffers: stored ones keep their dtype, others are kept or computed again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import trash_panda
from conftest import PackFactory
from models import WIDTH, Layer, assert_bit_equal, build, on_meta


class Rotary(nn.Module):
    """A layer with a table that is not stored and a bias that is, both in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = Layer()
        table = 1.0 / 10000 ** (torch.arange(0, WIDTH, 2).float() / WIDTH)
        self.register_buffer("table", table.repeat(2), persistent=False)
        self.register_buffer("bias", torch.zeros(WIDTH))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, hidden: Tensor) -> Tensor:
        self.calls += 1
        scaled = hidden.float() * self.table + self.bias
        return self.layer(scaled.to(self.layer.norm.weight.dtype))


class Model(nn.Module):
    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Rotary() for _ in range(config.layer_count))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def make() -> Model:
    return Model(SimpleNamespace(layer_count=4))


@pytest.fixture
def source() -> nn.Module:
    model = build(make)
    for layer in model.layers:
        # Has no exact bf16 value, so a cast would show.
        layer.bias.copy_(torch.linspace(0.1, 0.3, WIDTH))
    return model


def resident_output(source: nn.Module, hidden: Tensor) -> Tensor:
    for layer in source.layers:
        layer.layer.to(torch.bfloat16)
    return source(hidden)


def hidden_input() -> Tensor:
    return torch.linspace(-1, 1, 3 * WIDTH).reshape(3, WIDTH).to(torch.bfloat16)


def test_meta_buffers_are_computed_from_the_config(packs: PackFactory, source: nn.Module) -> None:
    pack = packs.pack(packs.checkpoint(source.state_dict()), tiers=["disk"] * 4)
    model = on_meta(make)
    assert model.layers[0].table.is_meta
    with trash_panda.load(pack, model):
        assert model.layers[0].table.dtype == torch.float32
        assert_bit_equal(model(hidden_input()), resident_output(source, hidden_input()))


class WithTable(Model):
    """Keeps a tensor that it does not register, as rotary tables of complex numbers are kept."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__(config)
        self.turns = torch.polar(torch.ones(WIDTH), torch.arange(WIDTH).float())

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden * self.turns.real.to(hidden.dtype))


def test_tensors_that_are_not_registered_are_computed_too(packs: PackFactory) -> None:
    def with_table() -> WithTable:
        return WithTable(SimpleNamespace(layer_count=4))

    resident = build(with_table)
    pack = packs.pack(packs.checkpoint(resident.state_dict()), tiers=["disk"] * 4)
    model = on_meta(with_table)
    assert model.turns.is_meta
    with trash_panda.load(pack, model):
        assert_bit_equal(model(hidden_input()), resident_output(resident, hidden_input()))
    model = on_meta(with_table)
    del model.config
    for layer, other in zip(model.layers, resident.layers, strict=True):
        layer.table = other.table
    with pytest.raises(trash_panda.CheckpointError, match=r"turns.*has no config"):
        trash_panda.load(pack, model)


def test_real_buffers_are_kept(packs: PackFactory, source: nn.Module) -> None:
    pack = packs.pack(packs.checkpoint(source.state_dict()), tiers=["disk"] * 4)
    model = on_meta(make)
    del model.config
    for layer, original in zip(model.layers, source.layers, strict=True):
        layer.table = original.table * 2
        original.table.mul_(2)
    with trash_panda.load(pack, model):
        assert_bit_equal(model(hidden_input()), resident_output(source, hidden_input()))


def test_meta_buffers_without_a_config_are_named(packs: PackFactory, source: nn.Module) -> None:
    pack = packs.pack(packs.checkpoint(source.state_dict()))
    model = on_meta(make)
    del model.config
    with pytest.raises(trash_panda.CheckpointError, match=r"layers\.0\.table.*register_buffer"):
        trash_panda.load(pack, model)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_class_that_can_t_be_built_again_is_named(packs: PackFactory, source: nn.Module) -> None:
    pack = packs.pack(packs.checkpoint(source.state_dict()))
    model = on_meta(make)
    model.config = SimpleNamespace()  # Lacks layer_count.
    with pytest.raises(trash_panda.CheckpointError, match=r"layers\.0\.table.*layer_count"):
        trash_panda.load(pack, model)


def test_stored_buffers_keep_their_dtype(packs: PackFactory, source: nn.Module) -> None:
    pack = packs.pack(packs.checkpoint(source.state_dict()), tiers=["disk"] * 4)
    model = on_meta(make)
    with trash_panda.load(pack, model):
        model(hidden_input())
        assert_bit_equal(model.layers[1].bias, source.layers[1].bias)


def test_changes_of_a_buffer_in_forward_last(packs: PackFactory, source: nn.Module) -> None:
    pack = packs.pack(packs.checkpoint(source.state_dict()), tiers=["disk"] * 4)
    model = on_meta(make)
    with trash_panda.load(pack, model):
        for _ in range(3):
            model(hidden_input())
        assert [int(layer.calls) for layer in model.layers] == [3] * 4


def test_rebuilding_leaves_the_random_state_alone(packs: PackFactory, source: nn.Module) -> None:
    pack = packs.pack(packs.checkpoint(source.state_dict()))
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with trash_panda.load(pack, on_meta(make)):
        assert torch.equal(torch.rand(3), expected)


class KeptInFp32(Model):
    """As transformers marks modules that must not be rounded."""

    _keep_in_fp32_modules = ("up",)
    _keep_in_fp32_modules_strict = ("norm",)


@pytest.mark.parametrize(
    ("compute_dtype", "up"), [("bf16", torch.bfloat16), ("fp16", torch.float32)]
)
def test_modules_kept_in_fp32_stay_so(
    packs: PackFactory, source: nn.Module, compute_dtype: str, up: torch.dtype
) -> None:
    pack = packs.pack(packs.checkpoint(source.state_dict()), tiers=["disk"] * 4)
    model = on_meta(lambda: KeptInFp32(SimpleNamespace(layer_count=4)))
    with trash_panda.load(pack, model, compute_dtype=compute_dtype):
        layer = model.layers[2].layer
        assert layer.norm.weight.dtype == torch.float32
        assert layer.up.weight.dtype == up
        assert layer.down.weight.dtype != torch.float32
