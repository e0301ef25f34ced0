"""What a loaded model says of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import trash_panda
from conftest import PackFactory
from models import Tower, assert_bit_equal, build, on_meta, tokens

LAYERS = 3


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture(scope="module")
def pack(shared_packs: PackFactory) -> Path:
    checkpoint = shared_packs.checkpoint(build(tower).state_dict())
    return shared_packs.pack(checkpoint, tiers=["ram", "disk", "ram"])


def test_device_map_says_where_parts_are(pack: Path) -> None:
    model = on_meta(tower)
    loaded = trash_panda.load(pack, model)
    expected = {
        "embed": "cpu",
        "head": "cpu",
        "layers.0": "cpu",
        "layers.1": "disk",
        "layers.2": "cpu",
    }
    assert loaded.device_map == model.hf_device_map == expected
    # transformers' pipeline() computes where the first part is.
    assert torch.device(next(iter(model.hf_device_map.values()))) == loaded.device
    loaded.handle.remove()
    assert not hasattr(model, "hf_device_map")


def test_device_map_follows_another_plan(pack: Path) -> None:
    plan = trash_panda.Plan.load(pack / "plan.toml").assign("disk", indices=[0])
    with trash_panda.load(pack, on_meta(tower), plan=plan) as loaded:
        assert loaded.device_map["layers.0"] == "disk"


def test_nothing_of_a_gpu_is_released_on_the_cpu(pack: Path) -> None:
    with trash_panda.load(pack, on_meta(tower)) as loaded:
        before = loaded.model(tokens())
        loaded.release_gpu()
        assert loaded.model.to("cpu") is loaded.model
        assert_bit_equal(loaded.model(tokens()), before)
        loaded.restore_gpu()
        assert_bit_equal(loaded.model(tokens()), before)
    with pytest.raises(trash_panda.ReleasedError):
        loaded.release_gpu()


def test_trace_is_made_of_the_run_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pack: Path
) -> None:
    with trash_panda.load(pack, on_meta(tower)) as loaded:
        loaded.model(tokens())
        with pytest.raises(trash_panda.TrashPandaError, match="TRASH_PANDA_LOG"):
            loaded.trace(tmp_path / "none.json")
    monkeypatch.setenv("TRASH_PANDA_LOG", str(tmp_path / "run.jsonl"))
    with trash_panda.load(pack, on_meta(tower)) as loaded:
        for _ in range(2):
            loaded.model(tokens())
    loaded.trace(tmp_path / "trace.json")
    loaded.trace(tmp_path / "trace.json")  # Replaces it.
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any("layers.1" in str(event) for event in events)
