"""The three steps of the earlier library: plan, stream_load, install_offload; and its helpers."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor

import trash_panda
from conftest import PackFactory
from models import Tower, assert_bit_equal, build, on_meta, tokens
from trash_panda import Plan, Tier, install_offload, offload_blocks, plan, stream_load
from trash_panda._program import find_program

LAYERS = 6


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture(scope="module")
def expected() -> Tensor:
    return build(tower).to(torch.bfloat16)(tokens())


@pytest.fixture(scope="module")
def checkpoint(shared_packs: PackFactory) -> Path:
    return shared_packs.checkpoint(build(tower).state_dict()) / "model.safetensors"


def test_the_three_steps(checkpoint: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    p = plan(model, checkpoint)
    assert str(p).startswith("Plan (auto): 6 blocks")
    report = stream_load(model, checkpoint, plan=p)
    install_offload(model)
    assert_bit_equal(model(tokens()), expected)
    assert report.counts == {"base": 2, "ram": 5 * LAYERS}
    assert report.nbytes["base"] == 2 * 100 * 64 * 4
    assert report.kinds == {"cast": 2 + 5 * LAYERS}
    assert (report.unexpected, report.skipped, report.aux_keys) == ([], 0, 0)
    assert "30 tensors in ram" in str(report)
    assert checkpoint.with_name("model.panda").is_dir()


def test_prefixes_instead_of_a_plan(checkpoint: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    report = stream_load(
        model,
        checkpoint,
        offload_prefixes=["layers."],
        resident_prefixes=["layers.0"],
        disk_prefixes=["layers.4.", "layers.5."],
    )
    handle = offload_blocks(model.layers)
    assert report.counts == {"base": 2, "gpu": 5, "ram": 15, "disk": 10}
    assert_bit_equal(model(tokens()), expected)
    handle.remove()
    with pytest.raises(trash_panda.PlanError, match=r"no block layerz\."):
        stream_load(model, checkpoint, disk_prefixes=["layerz."])


def test_a_plan_by_hand_is_used(checkpoint: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    p = Plan.manual(
        resident=["layers.0."], streamed=["layers.1", "layers.2"], disk=["layers.3", "layers.4"]
    )
    p.assign(Tier.DISK, indices=[1])
    assert stream_load(model, checkpoint, p).counts["disk"] == 15
    assert_bit_equal(model(tokens()), expected)
    with pytest.raises(trash_panda.PlanError, match=r"layers\.9"):
        stream_load(on_meta(tower), checkpoint, Plan.manual(disk=["layers.9"]))
    with pytest.raises(TypeError, match="not both"):
        stream_load(on_meta(tower), checkpoint, p, disk_prefixes=["layers."])


def test_assigning_after_loading_changes_the_next_load_only(
    checkpoint: Path, expected: Tensor
) -> None:
    model = on_meta(tower)
    p = plan(model, checkpoint)
    stream_load(model, checkpoint, plan=p)
    p.assign(Tier.DISK, indices=range(LAYERS))
    assert_bit_equal(model(tokens()), expected)
    assert stream_load(model, checkpoint, plan=p).counts["disk"] == 5 * LAYERS
    assert_bit_equal(model(tokens()), expected)


def test_a_plan_of_another_checkpoint_is_stale(checkpoint: Path, packs: PackFactory) -> None:
    other = packs.checkpoint(build(lambda: Tower(3)).state_dict())
    with pytest.raises(trash_panda.StalePlanError):
        stream_load(on_meta(tower), checkpoint, plan=plan(None, other))


def test_parts_may_be_skipped(checkpoint: Path) -> None:
    model = on_meta(tower)
    with pytest.raises(trash_panda.MissingTensorsError):
        stream_load(model, checkpoint, key_map={"head.weight": "tail.weight"})
    report = stream_load(model, checkpoint, skip_prefixes=["head."])
    assert (report.skipped, report.unexpected) == (1, [])
    assert model.head.weight.is_meta
    assert not model.embed.weight.is_meta


def test_other_names_and_dtypes(packs: PackFactory) -> None:
    resident = build(tower)
    state = {f"net.{name}": value for name, value in resident.state_dict().items()}
    state["net.gone"] = torch.zeros(3)
    model = on_meta(tower)
    report = stream_load(
        model,
        packs.checkpoint(state),
        compute_dtype=torch.float32,
        key_map=lambda key: key.removeprefix("net."),
    )
    assert report.unexpected == ["net.gone"]
    assert_bit_equal(model(tokens()), resident(tokens()))


def test_each_install_has_its_own_undo(checkpoint: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    stream_load(model, checkpoint)
    first, second = install_offload(model), install_offload(model)
    first.remove()
    first.remove()
    assert_bit_equal(model(tokens()), expected)
    second.remove()
    with pytest.raises(trash_panda.ReleasedError):
        model(tokens())
    third = install_offload(model)
    assert_bit_equal(model(tokens()), expected)
    third.remove()


def test_a_handle_takes_over_others(checkpoint: Path) -> None:
    models = [on_meta(tower), on_meta(tower)]
    all_of_them = trash_panda.OffloadHandle()
    for model in models:
        stream_load(model, checkpoint)
        all_of_them.extend(install_offload(model))
    all_of_them.remove()
    for model in models:
        with pytest.raises(trash_panda.ReleasedError):
            model(tokens())


def test_installing_with_another_plan_opens_the_pack_anew(
    checkpoint: Path, expected: Tensor
) -> None:
    model = on_meta(tower)
    p = plan(model, checkpoint)
    stream_load(model, checkpoint, plan=p)
    p.assign(Tier.DISK, indices=[2])
    install_offload(model, p, lookahead=1, compute_dtype=torch.bfloat16, profile=True)
    assert_bit_equal(model(tokens()), expected)


def test_a_model_that_was_not_loaded_is_told(checkpoint: Path) -> None:
    model = on_meta(tower)
    with pytest.raises(trash_panda.TrashPandaError, match=r"stream_load\(\)"):
        install_offload(model)
    with pytest.raises(trash_panda.TrashPandaError, match=r"block 0 \(Layer\) has no weights"):
        offload_blocks(model.layers)
    resident = build(tower)
    offload_blocks(resident.layers).remove()
    resident(tokens())


def test_nothing_keeps_a_model_alive(checkpoint: Path) -> None:
    model = on_meta(tower)
    stream_load(model, checkpoint)
    handle = install_offload(model)
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None
    handle.remove()


def test_a_checkpoint_in_a_folder_that_can_t_be_written(
    checkpoint: Path, expected: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = find_program()
    monkeypatch.setattr("trash_panda._program.find_program", lambda: program)
    # As root everything can be written, so the answer is given for the system.
    monkeypatch.setattr("os.access", lambda path, mode: False)
    monkeypatch.setenv("TRASH_PANDA_PACKS", str(tmp_path / "packs"))
    alone = tmp_path / "alone.safetensors"
    alone.write_bytes(checkpoint.read_bytes())
    model = on_meta(tower)
    stream_load(model, alone)
    assert [path.name for path in (tmp_path / "packs").iterdir()] == ["alone.panda"]
    assert_bit_equal(model(tokens()), expected)


@pytest.mark.parametrize("name", ["LOOKAHEAD", "PINNED_BUFFERS", "BLOCKS_IN_FLIGHT", "PROFILE"])
def test_a_bad_value_in_the_environment_is_named(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    stream_load(on_meta(tower), checkpoint)
    pack = checkpoint.with_name("model.panda")
    for bad in ("two", "-1", "maybe" if name == "PROFILE" else "0"):
        monkeypatch.setenv(f"TRASH_PANDA_{name}", bad)
        with pytest.raises(ValueError, match=f"TRASH_PANDA_{name} is '{bad}'"):
            trash_panda.load(pack, on_meta(tower))
    for good in ("", "1"):
        monkeypatch.setenv(f"TRASH_PANDA_{name}", good)
        trash_panda.load(pack, on_meta(tower)).close()


SHAPES = {"tensor": (), "channel": (24, 1), "row": (24,), "block": (3, 2)}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_expands_by_the_formula(shape: tuple[int, ...]) -> None:
    raw = torch.linspace(-400, 400, 24 * 16).reshape(24, 16).to(torch.float8_e4m3fn)
    scale = torch.linspace(0.5, 2, torch.Size(shape).numel()).reshape(shape)
    grid = torch.empty(24, 16)
    for i in range(24):
        for j in range(16):
            at = {(): (), (24, 1): (i, 0), (24,): (i,), (3, 2): (i // 8, j // 8)}[shape]
            grid[i, j] = scale[at]
    wanted = (raw.to(torch.float32) * grid).to(torch.bfloat16)
    assert_bit_equal(trash_panda.expand(raw, scale, torch.bfloat16, "cpu"), wanted)


def test_expands_without_a_scale_and_leaves_integers() -> None:
    values = torch.linspace(-1, 1, 8).to(torch.float8_e5m2)
    assert_bit_equal(trash_panda.expand(values, None, torch.float32), values.to(torch.float32))
    codes = torch.arange(8)
    assert trash_panda.expand(codes, None, torch.bfloat16, "cpu").dtype == torch.int64
    with pytest.raises(ValueError, match=r"shape \[5\] fits no weight of \[8\]"):
        trash_panda.expand(values, torch.ones(5), torch.float32)


def test_quantizes_with_one_scale() -> None:
    weight = torch.linspace(-3, 5, 4096).reshape(64, 64)
    codes, scale = trash_panda.quantize_fp8(weight)
    assert (codes.dtype, scale.dtype, scale.shape) == (torch.float8_e4m3fn, torch.float32, ())
    assert float(scale) == pytest.approx(5 / 448)
    back = trash_panda.expand(codes, scale, torch.float32)
    assert bool(((back - weight).abs() <= weight.abs() * 2**-4 + float(scale) * 2**-9).all())
    assert float(trash_panda.quantize_fp8(torch.zeros(4))[1]) == pytest.approx(1e-12)
    assert trash_panda.quantize_fp8(weight, torch.float8_e5m2)[0].dtype == torch.float8_e5m2
    with pytest.raises(ValueError, match="no fp8"):
        trash_panda.quantize_fp8(weight, torch.float16)


def test_one_prefix_need_not_be_a_list(checkpoint: Path) -> None:
    report = stream_load(on_meta(tower), checkpoint, disk_prefixes="layers.", skip_prefixes="head")
    assert report.counts == {"base": 1, "disk": 5 * LAYERS}
    with pytest.raises(trash_panda.MissingTensorsError, match=r"head\.weight"):
        trash_panda.load(
            checkpoint.with_name("model.panda"),
            on_meta(tower),
            ignore_missing="layers.*",
            key_map={"head.weight": None},
        )
    assert Plan.manual(disk="layers.0").disk == ("layers.0.",)


def test_a_plan_may_be_its_file(checkpoint: Path, expected: Tensor, tmp_path: Path) -> None:
    plan(None, checkpoint).assign("disk", indices=2).save(tmp_path / "plan.toml")
    model = on_meta(tower)
    assert stream_load(model, checkpoint, tmp_path / "plan.toml").counts["disk"] == 5
    assert_bit_equal(model(tokens()), expected)


def test_blocks_can_get_another_dtype(checkpoint: Path) -> None:
    model = on_meta(tower)
    stream_load(model, checkpoint)
    offload_blocks(model.layers, compute_dtype=torch.float16)
    assert_bit_equal(model(tokens()), build(tower).to(torch.float16)(tokens()))


@pytest.mark.parametrize("wrong", [{"device": "cuda"}, {"lookahead": 0}, {"compute_dtype": "int4"}])
def test_a_failed_install_leaves_the_model_as_it_was(
    checkpoint: Path, expected: Tensor, wrong: dict[str, object]
) -> None:
    model = on_meta(tower)
    stream_load(model, checkpoint)
    handle = install_offload(model)
    with pytest.raises((trash_panda.TrashPandaError, ValueError)):
        install_offload(model, **wrong)
    assert_bit_equal(model(tokens()), expected)
    handle.remove()
    with pytest.raises(trash_panda.ReleasedError):
        model(tokens())


def test_a_plan_by_hand_is_installed(checkpoint: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    stream_load(model, checkpoint)
    install_offload(model, Plan.manual(disk=["layers.1", "layers.4"]))
    assert list(model.hf_device_map.values()).count("disk") == 2
    assert_bit_equal(model(tokens()), expected)
    with pytest.raises(trash_panda.PlanError, match=r"no block layers\.9"):
        install_offload(model, Plan.manual(disk=["layers.9"]))
    assert_bit_equal(model(tokens()), expected)


def test_a_failed_load_leaves_the_model_as_it_was(checkpoint: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    stream_load(model, checkpoint)
    with pytest.raises(trash_panda.MissingTensorsError):
        stream_load(model, checkpoint, key_map={"head.weight": None})
    assert_bit_equal(model(tokens()), expected)


def test_a_handle_of_an_earlier_load_undoes_nothing(checkpoint: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    stream_load(model, checkpoint)
    first = install_offload(model)
    stream_load(model, checkpoint)
    second = install_offload(model)
    first.remove()
    assert_bit_equal(model(tokens()), expected)
    second.extend(second)
    second.remove()
    with pytest.raises(trash_panda.ReleasedError):
        model(tokens())
