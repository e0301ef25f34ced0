"""Models on a GPU: the fake driver's, and a real one where there is one."""

from __future__ import annotations

import gc
import importlib.util
import json
import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import exponent_code
import trash_panda
from conftest import PackFactory, run_cli, write_tiers
from fake_gpu import FakeGpu, fake_gpu
from models import WIDTH, Tower, assert_bit_equal, build, on_meta, tokens
from trash_panda import Pipeline, Stage, _gpu, _lora_set, _native
from trash_panda._guards import Guards

LAYERS = 6
TIERS = {
    "disk": ["disk"] * LAYERS,
    "ram": ["ram"] * LAYERS,
    "gpu": ["gpu"] * LAYERS,
    "mixed": ["gpu", "disk", "ram", "disk", "ram", "gpu"],
}


def tower() -> Tower:
    return Tower(LAYERS)


def resident() -> nn.Module:
    return build(tower).to(torch.bfloat16)


@pytest.fixture(scope="module")
def checkpoint(shared_packs: PackFactory) -> Path:
    return shared_packs.checkpoint(resident().state_dict())


@pytest.fixture(scope="module")
def pack(shared_packs: PackFactory, checkpoint: Path) -> Path:
    return shared_packs.pack(checkpoint)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    with fake_gpu(monkeypatch) as gpu:
        yield gpu


@pytest.fixture
def expected() -> Tensor:
    return resident()(tokens())


def plan_of(pack: Path, tiers: Sequence[str], folder: Path) -> Path:
    return write_tiers(pack / "plan.toml", tiers, folder / "tiers.toml")


def damage_code(pack: Path, name: str) -> None:
    """Gives the first tile of a tensor's code more escapes than it says."""
    manifest = json.loads((pack / "manifest.json").read_text())
    extent, tensor = next(
        (e, t) for e in manifest["extents"] for t in e["tensors"] if t["name"] == name
    )
    elements = min(math.prod(tensor["shape"]), exponent_code.CHUNK_ELEMENTS)
    rests = exponent_code.up(32 + 4 * -(-elements // exponent_code.TILE_ELEMENTS), 64)
    codes = rests + exponent_code.up(elements, 64)
    with (pack / manifest["shards"][extent["shard"]]["name"]).open("r+b") as shard:
        shard.seek(extent["offset_bytes"] + tensor["stored_offset_bytes"] + codes)
        shard.write(b"\xff" * 16)


@pytest.mark.parametrize("tiers", TIERS)
def test_equals_resident(
    gpu: FakeGpu, pack: Path, expected: Tensor, tiers: str, tmp_path: Path
) -> None:
    before = gpu.used_bytes()
    model = on_meta(tower)
    with trash_panda.load(pack, model, plan=plan_of(pack, TIERS[tiers], tmp_path)) as offloaded:
        gpu.compute_on(model)
        assert gpu.cache_clearings == 1
        for _ in range(3):
            assert_bit_equal(model(tokens()), expected)
        stats = offloaded.stats()
        assert stats["device_memory_bytes"] > 0
        assert "FAKE" in stats["device_description"].upper()
        assert stats["mispredict_count"] == 0
    gc.collect()
    assert gpu.used_bytes() == before


class Wide(nn.Module):
    """Weights that are large enough to be coded."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512, bias=False) for _ in range(3))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return hidden


@pytest.fixture
def coded_pack(shared_packs: PackFactory, tmp_path: Path) -> Path:
    checkpoint = shared_packs.checkpoint(build(Wide).to(torch.bfloat16).state_dict())
    pack = tmp_path / "model.panda"
    run_cli("repack", checkpoint, "-o", pack, "--compress", "exponent")
    extents = json.loads((pack / "manifest.json").read_text())["extents"]
    assert [e["codec"] for e in extents if e["tier"] != "base"] == ["exponent"] * 3
    return pack


def hidden() -> Tensor:
    return torch.linspace(-1, 1, 512).to(torch.bfloat16)


def test_coded_packs_equal_resident(gpu: FakeGpu, coded_pack: Path, tmp_path: Path) -> None:
    expected = build(Wide).to(torch.bfloat16)(hidden())
    model = on_meta(Wide)
    with trash_panda.load(
        coded_pack, model, plan=plan_of(coded_pack, ["gpu", "disk", "ram"], tmp_path)
    ):
        gpu.compute_on(model)
        for _ in range(2):
            assert_bit_equal(model(hidden()), expected)


@pytest.mark.parametrize("release", [False, True])
def test_damage_in_the_last_block_is_told_at_the_end(
    gpu: FakeGpu, coded_pack: Path, release: bool
) -> None:
    damage_code(coded_pack, "layers.2.weight")
    model = on_meta(Wide)
    offloaded = trash_panda.load(coded_pack, model)
    gpu.compute_on(model)
    model(hidden())
    if release:
        offloaded.release_gpu()
    with pytest.raises(trash_panda.CheckpointError, match="damaged"):
        offloaded.handle.remove()
    assert offloaded.closed
    assert not model._forward_pre_hooks


def test_every_block_is_asked_for_on_the_stream_of_torch(gpu: FakeGpu, pack: Path) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        gpu.compute_on(model)
        for passes in (1, 2):
            model(tokens())
            assert gpu.streams_asked == [0] * LAYERS * passes


def test_memory_is_given_back_and_taken_again(
    gpu: FakeGpu, pack: Path, expected: Tensor, tmp_path: Path
) -> None:
    before = gpu.used_bytes()
    model = on_meta(tower)
    with trash_panda.load(pack, model, plan=plan_of(pack, TIERS["mixed"], tmp_path)) as offloaded:
        gpu.compute_on(model)
        assert_bit_equal(model(tokens()), expected)
        read = offloaded.stats()["read_bytes_ram"]
        for _ in range(2):
            offloaded.release_gpu()
            offloaded.release_gpu()
            assert gpu.used_bytes() == before
            assert offloaded.stats()["device_memory_bytes"] == 0
            with pytest.raises(trash_panda.ReleasedError, match="restore_gpu"):
                model(tokens())
            with pytest.raises(trash_panda.ReleasedError, match="restore_gpu"):
                model.layers[0](torch.zeros(1, 1, WIDTH))
            offloaded.restore_gpu()
            offloaded.restore_gpu()
            assert_bit_equal(model(tokens()), expected)
        extents = [e for e in _native.read_manifest(pack)["extents"] if e["tier"] != "base"]
        tiers = zip(extents, TIERS["mixed"], strict=True)
        kept = sum(extent["stored_bytes"] for extent, tier in tiers if tier == "gpu")
        # Only what is kept on the GPU was read again.
        assert offloaded.stats()["read_bytes_ram"] == read + 2 * kept
        offloaded.release_gpu()
    assert gpu.used_bytes() == before


def test_restoring_that_fails_can_be_tried_again(
    gpu: FakeGpu, pack: Path, expected: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = {"head.lora_A.weight": torch.ones(4, WIDTH), "head.lora_B.weight": torch.ones(100, 4)}
    before = gpu.used_bytes()
    model = on_meta(tower)
    with trash_panda.load(pack, model) as offloaded:
        gpu.compute_on(model)
        offloaded.add_lora(adapter)
        adapted = model(tokens())
        offloaded.release_gpu()
        with monkeypatch.context() as patched:
            patched.setattr(_lora_set, "merge", _fail)
            with pytest.raises(MemoryError):
                offloaded.restore_gpu()
        assert gpu.used_bytes() == before
        with pytest.raises(trash_panda.ReleasedError, match="restore_gpu"):
            model(tokens())
        offloaded.set_lora("default", 0.5)
        offloaded.set_lora("default", 1.0)
        clearings = gpu.cache_clearings
        offloaded.restore_gpu()
        assert gpu.cache_clearings == clearings + 1
        assert_bit_equal(model(tokens()), adapted)
        offloaded.remove_lora()
        assert_bit_equal(model(tokens()), expected)


def _fail(*rest: object) -> None:
    raise MemoryError


def test_memory_in_use_is_not_given_back(gpu: FakeGpu, pack: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    refused = []

    def release(*rest: object) -> None:
        with pytest.raises(trash_panda.TrashPandaError, match="thread") as caught:
            offloaded.release_gpu()
        refused.append(caught)

    def release_from_beside(*rest: object) -> None:
        beside = threading.Thread(target=release)
        beside.start()
        beside.join(30)

    with trash_panda.load(pack, model) as offloaded:
        gpu.compute_on(model)
        model.layers[2].register_forward_pre_hook(release_from_beside)
        assert_bit_equal(model(tokens()), expected)
    assert len(refused) == 1


def test_to_gives_memory_back_and_takes_it(gpu: FakeGpu, pack: Path, expected: Tensor) -> None:
    before = gpu.used_bytes()
    model = on_meta(tower)
    with trash_panda.load(pack, model) as offloaded:
        gpu.compute_on(model)
        # The fake GPU's tensors are the CPU's for torch, so no tensor tells where it goes.
        offloaded.stream.device = torch.device("cuda", 0)
        for _ in range(2):
            assert_bit_equal(model(tokens()), expected)
            assert offloaded.stream.move(torch.device("cpu"))
            assert gpu.used_bytes() == before
            offloaded.stream.move(torch.device("cuda", 0))
            assert gpu.used_bytes() > before
        with pytest.raises(trash_panda.TrashPandaError, match="moved or converted"):
            model.to(torch.float32)
        with pytest.raises(trash_panda.TrashPandaError, match="moved or converted"):
            model.layers[0].to("meta")


def test_moving_needs_the_model_only(gpu: FakeGpu, pack: Path, expected: Tensor) -> None:
    before = gpu.used_bytes()
    model: Tower = trash_panda.load(pack, on_meta(tower)).model
    gc.collect()
    gpu.compute_on(model)
    model.cpu()
    assert gpu.used_bytes() == before
    del model
    gc.collect()
    assert gpu.used_bytes() == before


def test_converting_is_no_move() -> None:
    asked: list[torch.device] = []

    def move(device: torch.device) -> bool:
        asked.append(device)
        return True

    # A device that tensors of the CPU are not on, as a GPU is.
    there = torch.device("meta")
    model = nn.Linear(2, 2, dtype=torch.bfloat16)
    guards = Guards(model, [], torch.bfloat16, there, move)
    model.to(torch.bfloat16)
    model.bfloat16()
    assert not asked
    model.to(there, torch.bfloat16)
    assert asked == [there]
    guards.remove()


class Counting(nn.Module):
    """Counts its forwards in a buffer outside of its blocks, and in one that it replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.count = nn.Buffer(torch.zeros(1))
        self.replaced = nn.Buffer(torch.zeros(1))

    def forward(self, hidden: Tensor) -> Tensor:
        self.count += 1
        self.replaced = torch.cat([self.replaced, self.count])
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def test_changed_buffers_come_back(gpu: FakeGpu, packs: PackFactory) -> None:
    pack = packs.pack(packs.checkpoint(build(Counting).state_dict()))
    model = on_meta(Counting)
    with trash_panda.load(pack, model) as offloaded:
        gpu.compute_on(model)
        model(torch.ones(1, 8, dtype=torch.bfloat16))
        for count in (1, 2):
            offloaded.release_gpu()
            offloaded.restore_gpu()
            assert model.count.item() == count
            assert model.replaced.tolist() == list(range(count + 1))
            model(torch.ones(1, 8, dtype=torch.bfloat16))


@pytest.mark.parametrize("mode", ["merge", "side"])
def test_adapters_come_back_with_the_memory(
    gpu: FakeGpu, pack: Path, expected: Tensor, mode: str
) -> None:
    torch.manual_seed(3)
    adapter = {}
    for layer in ("layers.1.up", "head"):
        rows = 2 * WIDTH if layer != "head" else 100
        adapter[f"{layer}.lora_A.weight"] = torch.randn(4, WIDTH)
        adapter[f"{layer}.lora_B.weight"] = torch.randn(rows, 4)
    model = on_meta(tower)
    with trash_panda.load(pack, model) as offloaded:
        gpu.compute_on(model)
        offloaded.add_lora(adapter, mode=mode)
        adapted = model(tokens())
        assert not torch.equal(adapted, expected)
        offloaded.release_gpu()
        offloaded.restore_gpu()
        assert_bit_equal(model(tokens()), adapted)
        offloaded.remove_lora()
        assert_bit_equal(model(tokens()), expected)


def test_an_interrupted_forward_leaves_the_gpu_in_order(
    gpu: FakeGpu, pack: Path, expected: Tensor
) -> None:
    def interrupt(*rest: object) -> None:
        raise KeyboardInterrupt

    model = on_meta(tower)
    with trash_panda.load(pack, model):
        gpu.compute_on(model)
        for at in (0, 3):
            handle = model.layers[at].register_forward_pre_hook(interrupt)
            with pytest.raises(KeyboardInterrupt):
                model(tokens())
            handle.remove()
            assert_bit_equal(model(tokens()), expected)


def test_stages_follow_one_another(gpu: FakeGpu, checkpoint: Path, expected: Tensor) -> None:
    before = gpu.used_bytes()
    stages = [
        Stage(name, tower, checkpoint, forwards=2, lookahead=1) for name in ("first", "second")
    ]
    with Pipeline(stages, max_ram=1_000_000) as pipeline:
        for name in ("first", "second"):
            with pipeline.run(name) as model:
                gpu.compute_on(model)
                for _ in range(2):
                    assert_bit_equal(model(tokens()), expected)
        assert pipeline.report().peak_bytes <= 1_000_000
    gc.collect()
    assert gpu.used_bytes() == before


def gpu_pass() -> Any:
    """The benchmark, which is no module of a package."""
    file = Path(__file__).parents[2] / "bench" / "gpu_pass.py"
    spec = importlib.util.spec_from_file_location("gpu_pass", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_benchmark_streams_what_it_says(
    gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = gpu_pass()
    packs = bench.Packs(tmp_path, 128, 4)
    plain = bench.Decoder(128, 4).to(torch.bfloat16)
    plain.load_state_dict(load_file(tmp_path / "model.safetensors"))
    hidden = torch.ones(3, 128, dtype=torch.bfloat16)
    with torch.inference_mode():
        expected = plain(hidden)
    described = []
    load = bench.Packs.load

    def load_on_fake(*arguments: Any) -> trash_panda.Offloaded:
        offloaded: trash_panda.Offloaded = load(*arguments)
        gpu.compute_on(offloaded.model)
        described.append(offloaded.stats()["device_description"])
        assert [block.tier for block in offloaded.plan.blocks].count(trash_panda.Tier.GPU) == 1
        return offloaded

    monkeypatch.setattr(bench.Packs, "load", load_on_fake)
    for pack in (packs.raw, packs.coded):
        for is_synchronous in (False, True):
            seconds, result = bench.streamed_passes(
                packs, pack, hidden, gpu.synchronize, resident_count=1, count=2,
                is_synchronous=is_synchronous, device="cpu",
            )  # fmt: skip
            assert len(seconds) == 2
            assert_bit_equal(result, expected)
            assert ("asynchronous" in described[-1]) != is_synchronous
    line = bench.summary(
        0.25, 3 * packs.block_bytes, packs.block_bytes,
        {"compute_s": 1.0, "async_s": 6.0, "sync_s": 9.0, "coded_s": 4.5},
    )  # fmt: skip
    assert (line["link_s"], line["bound_s"], line["async_to_bound"]) == (3, 3, 2)
    assert (line["sync_to_async"], line["coded_to_async"]) == (1.5, 0.75)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_benchmark_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gpu_pass.py", "--dir", str(tmp_path)])
    assert gpu_pass().main() == 0
    assert "finds no NVIDIA GPU" in capsys.readouterr().out


def test_other_devices_are_refused_by_name() -> None:
    with pytest.raises(trash_panda.UnsupportedFormatError, match="mps"):
        _gpu.choose_place("mps")
    if not torch.cuda.is_available():
        with pytest.raises(trash_panda.TrashPandaError, match=r"cuda.*finds no NVIDIA GPU.*cpu"):
            _gpu.choose_place("cuda")
        assert _gpu.choose_place(None).device.type == "cpu"


def test_a_gpu_that_can_t_be_opened_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(ordinal: int, is_synchronous: bool) -> None:
        raise trash_panda.TrashPandaError(f"GPU {ordinal} is busy")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(_gpu, "_open_gpu", refuse)
    with caplog.at_level("WARNING", logger="trash_panda"):
        assert _gpu.choose_place(None) == (torch.device("cpu"), None)
    assert "computing on the CPU: GPU 1 is busy" in caplog.text
    with pytest.raises(trash_panda.TrashPandaError, match="GPU 1 is busy"):
        _gpu.choose_place("cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU")
@pytest.mark.parametrize("tiers", TIERS)
def test_equals_resident_on_a_real_gpu(pack: Path, tiers: str, tmp_path: Path) -> None:
    expected = resident().cuda()(tokens().cuda())
    model = on_meta(tower)
    plan = plan_of(pack, TIERS[tiers], tmp_path)
    with trash_panda.load(pack, model, plan=plan, device="cuda") as offloaded:
        for _ in range(3):
            assert_bit_equal(model(tokens().cuda()).cpu(), expected.cpu())
        model.to("cpu")
        assert offloaded.stats()["device_memory_bytes"] == 0
        model.to("cuda")
        assert_bit_equal(model(tokens().cuda()).cpu(), expected.cpu())
