"""A model all of whose blocks stay in memory as they are: after the first pass, as any model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trash_panda
from conftest import PackFactory, interrupted, interruptions, run_cli
from models import (
    WIDTH,
    Tower,
    assert_bit_equal,
    build,
    on_meta,
    tokens,
)

LAYERS = 4


def tower() -> Tower:
    return Tower(LAYERS)


def resident() -> nn.Module:
    return build(tower).to(torch.bfloat16)


@pytest.fixture(scope="module")
def pack(shared_packs: PackFactory) -> Path:
    checkpoint = shared_packs.checkpoint(resident().state_dict())
    plan, pack = checkpoint / "plan.toml", checkpoint / "model.panda"
    run_cli("plan", checkpoint, "-o", plan, "--assign", "ram=*")
    run_cli("repack", checkpoint, "--plan", plan, "-o", pack, "--compress", "none")
    return pack


@pytest.fixture
def expected() -> Tensor:
    return resident()(tokens())


def in_place(model: nn.Module) -> list[bool]:
    return [not parameter.is_meta for parameter in model.layers.parameters()]


def test_weights_stay_from_their_first_use_on(pack: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model) as offloaded:
        assert not any(in_place(model))
        assert_bit_equal(model(tokens()), expected)
        assert all(in_place(model))
        parameters = list(model.layers.parameters())
        for _ in range(2):
            assert_bit_equal(model(tokens()), expected)
        assert not any(layer._forward_pre_hooks for layer in model.layers)
        assert all(a is b for a, b in zip(parameters, model.layers.parameters(), strict=True))
        stats = offloaded.stats()
    assert not any(in_place(model))
    assert (stats["pass_count"], stats["mispredict_count"]) == (3, 0)
    assert (stats["pass_read_bytes_ram"], stats["pass_read_bytes_disk"]) == (0, 0)
    with pytest.raises(trash_panda.ReleasedError):
        model(tokens())
    with trash_panda.load(pack, model):
        assert_bit_equal(model(tokens()), expected)


def test_passes_without_the_model_s_forward_are_counted(pack: Path) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model) as offloaded:
        hidden = torch.zeros(1, WIDTH, dtype=torch.bfloat16)
        for _ in range(3):
            for layer in model.layers:
                layer(hidden)
        assert all(in_place(model))
        assert offloaded.stats()["pass_count"] == 3


def test_a_second_thread_is_refused(pack: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    errors: list[Exception] = []

    def call_again(module: nn.Module, args: object) -> None:
        def second() -> None:
            with pytest.raises(trash_panda.TrashPandaError, match="running in thread") as caught:
                model(tokens())
            errors.append(caught.value)

        thread = threading.Thread(target=second)
        thread.start()
        thread.join(30)

    with trash_panda.load(pack, model):
        for _ in range(2):
            model(tokens())
        model.layers[2].register_forward_pre_hook(call_again)
        assert_bit_equal(model(tokens()), expected)
    assert len(errors) == 1


def test_parts_of_a_block_can_be_called(pack: Path) -> None:
    model, plain = on_meta(tower), resident()
    hidden = torch.linspace(-1, 1, WIDTH).to(torch.bfloat16)
    with trash_panda.load(pack, model):
        with pytest.raises(trash_panda.TrashPandaError, match="not in memory"):
            model.layers[1].up(hidden)
        model(tokens())
        assert_bit_equal(model.layers[1].up(hidden), plain.layers[1].up(hidden))


def test_a_gradient_goes_through_weights_that_stay(pack: Path) -> None:
    gradients = []
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        for each in (model, resident()):
            hidden = torch.linspace(-1, 1, WIDTH).to(torch.bfloat16).requires_grad_()
            output = hidden
            for layer in each.layers:
                output = layer(output)
            output.sum().backward()
            gradients.append(hidden.grad)
    assert_bit_equal(*gradients)


@interruptions
def test_an_exception_in_forward_leaves_the_model_usable(
    pack: Path, expected: Tensor, error: BaseException
) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        for _ in range(2):
            with interrupted(model.layers[2].down, error):
                model(tokens())
            assert_bit_equal(model(tokens()), expected)


def test_what_would_change_or_copy_weights_is_refused_all_the_same(pack: Path) -> None:
    model = on_meta(tower)
    refused: list[Callable[[], object]] = [model.state_dict, model.float, lambda: model.to("meta")]
    with trash_panda.load(pack, model):
        model(tokens())
        for call in refused:
            with pytest.raises(trash_panda.TrashPandaError):
                call()


def test_adapters_come_and_go(pack: Path, expected: Tensor) -> None:
    generator = torch.Generator().manual_seed(5)
    down = torch.randn(2, WIDTH, generator=generator)
    up = torch.randn(2 * WIDTH, 2, generator=generator)
    adapter = {"layers.1.up.lora_A.weight": down, "layers.1.up.lora_B.weight": up}
    merged = resident()
    weight = merged.layers[1].up.weight
    weight.copy_((weight.float() + up @ down).to(torch.bfloat16))
    model = on_meta(tower)
    with trash_panda.load(pack, model) as offloaded:
        for _ in range(2):
            assert_bit_equal(model(tokens()), expected)
            offloaded.add_lora(adapter)
            for _ in range(2):
                assert_bit_equal(model(tokens()), merged(tokens()))
            offloaded.remove_lora()
        assert_bit_equal(model(tokens()), expected)


def test_a_run_log_still_tells_of_each_use(
    pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "run.jsonl"
    monkeypatch.setattr("trash_panda._assemble._run_log", lambda: log)
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        for _ in range(2):
            model(tokens())
        assert not any(in_place(model))
    kinds = [json.loads(line)["type"] for line in log.read_text().splitlines()]
    assert kinds.count("block") == 2 * LAYERS
