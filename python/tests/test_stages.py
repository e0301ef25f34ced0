"""release(), stage() and what they remember."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trash_panda
from conftest import PackFactory
from models import Tower, assert_bit_equal, build, on_meta, tokens
from trash_panda import _gpu
from trash_panda._stages import remembered_activation

LAYERS = 4
BIG = 64 * 2**20


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "trash-panda" / "activations.json"


@pytest.fixture
def checkpoint(packs: PackFactory) -> Path:
    return packs.checkpoint(build(lambda: Tower(LAYERS)).state_dict())


def test_a_stage_ends_with_its_with(checkpoint: Path) -> None:
    expected = build(lambda: Tower(LAYERS)).to(torch.bfloat16)(tokens())
    with trash_panda.stage(lambda: Tower(LAYERS), checkpoint, lookahead=1) as (model, plan):
        assert len(plan.blocks) == LAYERS
        assert_bit_equal(model(tokens()), expected)
    with pytest.raises(trash_panda.ReleasedError):
        model(tokens())
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_stage_that_fails_is_released_and_remembers_nothing(checkpoint: Path) -> None:
    with (
        pytest.raises(KeyError),
        trash_panda.stage(lambda: Tower(LAYERS), checkpoint, "mine") as (model, _),
    ):
        raise KeyError("mine")
    with pytest.raises(trash_panda.ReleasedError):
        model(tokens())
    assert remembered_activation("mine") is None


def test_the_peak_is_remembered_across_processes(checkpoint: Path, cache: Path) -> None:
    with trash_panda.stage(lambda: Tower(LAYERS), checkpoint, key="big"):
        torch.ones(BIG // 4)
    first = remembered_activation("big")
    assert first is not None
    assert first >= BIG // 2
    with trash_panda.stage(lambda: Tower(LAYERS), checkpoint, key="big"):
        pass
    assert remembered_activation("big") == first
    code = "from trash_panda._stages import remembered_activation as r; print(r('big'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == first
    assert json.loads(cache.read_text()) == {"big": first}
    cache.write_text("damaged")
    assert remembered_activation("big") is None


def test_the_key_is_the_checkpoint_by_default(checkpoint: Path) -> None:
    with trash_panda.stage(lambda: Tower(LAYERS), checkpoint):
        pass
    assert remembered_activation(str(checkpoint)) is not None


class Wide(nn.Module):
    """Some 50 MB of weights that stay in RAM."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1024, 1024, bias=False) for _ in range(24))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def test_weights_that_are_read_to_stay_are_no_activations(packs: PackFactory) -> None:
    checkpoint = packs.checkpoint(on_meta(Wide).to_empty(device="cpu").bfloat16().state_dict())
    hidden = torch.zeros(1, 1024, dtype=torch.bfloat16)
    with torch.no_grad(), trash_panda.stage(Wide, checkpoint, "wide") as (model, plan):
        assert len(plan.streamed) == 24
        assert trash_panda.measure_activation_vram(lambda: model(hidden)) < BIG // 4
    remembered = remembered_activation("wide")
    assert remembered is not None
    assert remembered < BIG // 4


def test_what_was_remembered_is_planned_with(checkpoint: Path) -> None:
    machine = trash_panda.Hardware(12 * 10**9, 12 * 10**9, 32 * 10**9, 32 * 10**9, "a GPU")

    def make(activation: object) -> trash_panda.Plan:
        return trash_panda.plan(None, checkpoint, hardware=machine, activation_vram=activation)

    assert any("stage() once" in warning for warning in make("auto").warnings)
    with trash_panda.stage(lambda: Tower(LAYERS), checkpoint):
        torch.ones(BIG // 4)
    remembered = remembered_activation(str(checkpoint))
    assert make("auto").to_toml() == make(remembered).to_toml() != make(0).to_toml()
    assert not any("stage() once" in warning for warning in make("auto").warnings)


def test_what_loading_needs_is_handed_on(packs: PackFactory) -> None:
    state = build(lambda: Tower(LAYERS)).state_dict()
    del state["head.weight"]
    checkpoint = packs.checkpoint(state)
    with trash_panda.stage(lambda: Tower(LAYERS), checkpoint, skip_prefixes=["head."]) as (
        model,
        plan,
    ):
        assert plan.warnings == []
        assert not model.embed.weight.is_meta
    with (
        pytest.raises(trash_panda.UnsupportedFormatError, match="mps"),
        trash_panda.stage(lambda: Tower(LAYERS), checkpoint, device="mps", skip_prefixes="head."),
    ):
        pass


def test_measures_what_a_call_takes() -> None:
    needed = trash_panda.measure_activation_vram(lambda: torch.ones(BIG // 4))
    assert BIG // 2 <= needed < 4 * BIG
    if not torch.cuda.is_available():
        with pytest.raises(trash_panda.TrashPandaError, match="finds no NVIDIA GPU"):
            trash_panda.measure_activation_vram(lambda: None, device="cuda")


def test_measures_what_torch_takes_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"now": 7000, "most": 9000}
    device = torch.device("cuda", 0)

    def reset(of: torch.device) -> None:
        assert of == device
        taken["most"] = taken["now"]

    def compute() -> None:
        taken["most"] += 500

    monkeypatch.setattr(_gpu, "choose_place", lambda asked: _gpu.Place(device, None))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda of: taken["now"])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda of: taken["most"])
    assert trash_panda.measure_activation_vram(compute, device="cuda") == 500


def test_release_reports_memory(checkpoint: Path) -> None:
    with torch.device("meta"):
        model = Tower(LAYERS)
    trash_panda.stream_load(model, checkpoint)
    report = trash_panda.release(model, trash_panda.install_offload(model))
    assert min(report.before_bytes, report.after_bytes) > 2**20
    assert "before" in str(report)
    with pytest.raises(trash_panda.ReleasedError):
        model(tokens())
