"""What is wrong with a pack or a plan is said, and the model stays as it was."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import trash_panda
from conftest import PackFactory, write_tiers
from models import Tower, assert_bit_equal, build, on_meta, tokens

LAYERS = 6


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture
def pack(packs: PackFactory) -> Path:
    tiers = ["disk", "ram"] * (LAYERS // 2)
    return packs.pack(packs.checkpoint(build(tower).state_dict()), tiers=tiers)


def data_offset(shard: Path, name: str) -> int:
    """Where a tensor's bytes start in a shard, from the start of the file."""
    with shard.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(length))
    return 8 + length + header[name]["data_offsets"][0]


DISK_TENSOR = "layers.2.up.weight"


@pytest.mark.parametrize(
    ("shard", "tensor"),
    [
        ("base-00001.safetensors", "embed.weight"),
        ("ram-00001.safetensors", "layers.1.up.weight"),
        ("disk-00001.safetensors", DISK_TENSOR),
    ],
)
def test_a_flipped_bit_in_any_shard_is_found(
    pack: Path, flip_bit: Callable[[Path, int], None], shard: str, tensor: str
) -> None:
    flip_bit(pack / shard, data_offset(pack / shard, tensor) + 5)
    model = on_meta(tower)
    with pytest.raises(trash_panda.IntegrityError, match=shard):
        trash_panda.load(pack, model, verify="full")
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_bit_that_flips_later_is_found_when_it_is_read(
    pack: Path, flip_bit: Callable[[Path, int], None]
) -> None:
    model = on_meta(tower)
    shard = pack / "disk-00001.safetensors"
    with trash_panda.load(pack, model, verify="full", lookahead=1):
        expected = model(tokens())
        offset = data_offset(shard, DISK_TENSOR) + 5
        flip_bit(shard, offset)

        def two_passes() -> None:
            # The block may have been read ahead before the bit flipped.
            model(tokens())
            model(tokens())

        with pytest.raises(trash_panda.IntegrityError, match=r"layers\.2"):
            two_passes()
        flip_bit(shard, offset)
        assert_bit_equal(model(tokens()), expected)


def test_verify_reports_progress_and_can_be_stopped(pack: Path) -> None:
    seen: list[tuple[int, int]] = []
    with trash_panda.load(
        pack, on_meta(tower), verify="full", progress=lambda *state: seen.append(state)
    ):
        pass
    total = sum(shard.stat().st_size for shard in pack.glob("*.safetensors"))
    assert seen[-1] == (total, total)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trash_panda.load(pack, on_meta(tower), verify="full", progress=stop)


def test_missing_tensors_are_listed(packs: PackFactory) -> None:
    state = build(tower).state_dict()
    del state["layers.3.up.bias"], state["head.weight"]
    pack = packs.pack(packs.checkpoint(state))
    model = on_meta(tower)
    with pytest.raises(trash_panda.MissingTensorsError, match="2 tensors of Tower") as caught:
        trash_panda.load(pack, model)
    assert caught.value.names == ("layers.3.up.bias", "head.weight")
    assert model.embed.weight.is_meta
    with trash_panda.load(pack, model, ignore_missing=["head.*", "layers.*.bias"]):
        assert model.head.weight.is_meta


def test_not_strict_keeps_what_the_model_has(
    packs: PackFactory, caplog: pytest.LogCaptureFixture
) -> None:
    source = build(tower)
    state = source.state_dict()
    head = state.pop("head.weight")
    pack = packs.pack(packs.checkpoint(state))
    model = on_meta(tower)
    model.head = torch.nn.Linear(64, 100, bias=False)
    model.head.weight.data = head.to(torch.bfloat16)
    with trash_panda.load(pack, model, strict=False):
        assert "head.weight" in caplog.text
        assert_bit_equal(model(tokens()), source.to(torch.bfloat16)(tokens()))


def test_unexpected_tensors_are_listed(
    packs: PackFactory, caplog: pytest.LogCaptureFixture
) -> None:
    pack = packs.pack(packs.checkpoint(build(tower).state_dict() | {"extra.bias": torch.ones(2)}))
    with trash_panda.load(pack, on_meta(tower)) as offloaded:
        assert offloaded.unexpected == ["extra.bias"]
    assert "extra.bias" in caplog.text


def test_other_shapes_are_named(pack: Path) -> None:
    model = on_meta(tower)
    model.head = torch.nn.Linear(64, 101, bias=False, device="meta")
    with pytest.raises(
        trash_panda.CheckpointError, match=r"head\.weight.*\[100, 64\].*\[101, 64\]"
    ):
        trash_panda.load(pack, model)


def test_a_folder_that_is_no_pack_is_named(tmp_path: Path) -> None:
    with pytest.raises(trash_panda.CheckpointError, match=re.escape(str(tmp_path))):
        trash_panda.load(tmp_path, on_meta(tower))


def test_a_shortened_shard_is_refused(pack: Path) -> None:
    shard = pack / "disk-00001.safetensors"
    with shard.open("r+b") as stream:
        stream.truncate(shard.stat().st_size - 4096)
    with pytest.raises(trash_panda.CheckpointError, match=re.escape(shard.name)):
        trash_panda.load(pack, on_meta(tower))


def test_a_plan_for_another_checkpoint_is_stale(pack: Path, packs: PackFactory) -> None:
    other = packs.pack(packs.checkpoint(build(lambda: Tower(LAYERS + 1)).state_dict()))
    with pytest.raises(trash_panda.StalePlanError, match="another checkpoint"):
        trash_panda.load(pack, on_meta(tower), plan=other / "plan.toml")


def test_a_plan_that_lacks_a_block_is_refused(pack: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text((pack / "plan.toml").read_text().replace('"layers.3"', '"layers.33"'))
    with pytest.raises(trash_panda.PlanError, match=r"layers\.3\b"):
        trash_panda.load(pack, on_meta(tower), plan=plan)


@pytest.mark.parametrize("text", ["", "[model", "nonsense = 1"])
def test_a_plan_that_is_none_is_a_plan_error(pack: Path, tmp_path: Path, text: str) -> None:
    plan = tmp_path / "broken.toml"
    plan.write_text(text)
    with pytest.raises(trash_panda.PlanError, match=r"broken\.toml"):
        trash_panda.load(pack, on_meta(tower), plan=plan)


def test_an_absent_plan_is_a_plan_error(pack: Path, tmp_path: Path) -> None:
    with pytest.raises(trash_panda.PlanError, match=r"absent\.toml"):
        trash_panda.load(pack, on_meta(tower), plan=tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"verify": "all"}, ValueError),
        ({"compute_dtype": "int8"}, ValueError),
        ({"compute_dtype": torch.int8}, ValueError),
        ({"device": "mps"}, trash_panda.UnsupportedFormatError),
        ({"lookahead": 0}, trash_panda.TrashPandaError),
        ({"lookahead": "lots"}, trash_panda.TrashPandaError),
        ({"lookahead": 1.5}, TypeError),
        ({"lookahead": True}, TypeError),
        ({"lookahead": 10**19}, ValueError),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(
    pack: Path, arguments: dict[str, object], error: type[Exception]
) -> None:
    model = on_meta(tower)
    with pytest.raises(error, match=str(next(iter(arguments.values())))):
        trash_panda.load(pack, model, **arguments)  # type: ignore[arg-type]
    assert model.embed.weight.is_meta


def test_a_call_without_a_model_says_how(pack: Path) -> None:
    with pytest.raises(TypeError, match="meta"):
        trash_panda.load(pack)


def test_tiers_of_another_plan_need_no_new_pack(pack: Path, tmp_path: Path) -> None:
    plan = write_tiers(pack / "plan.toml", ["ram"] * LAYERS, tmp_path / "plan.toml")
    model = on_meta(tower)
    with trash_panda.load(pack, model, plan=plan) as offloaded:
        model(tokens())
        model(tokens())
        assert offloaded.stats()["read_bytes_disk"] == 0
