"""Adapters on streamed blocks, beside PEFT's arithmetic written out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import trash_panda
from conftest import PackFactory
from models import WIDTH, Tower, assert_bit_equal, build, on_meta, tokens

LAYERS = 4
RANK = 3
ALPHA = 6.0
# The head lies outside of blocks.
ADAPTED = [*(f"layers.{n}.{part}" for n in range(LAYERS) for part in ("up", "down")), "head"]
TIERS = [["disk"] * LAYERS, ["ram"] * LAYERS, ["ram", "disk", "ram", "disk"]]


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture(scope="module")
def pack(shared_packs: PackFactory) -> Path:
    state = {name: t.to(torch.bfloat16) for name, t in build(tower).state_dict().items()}
    return shared_packs.pack(shared_packs.checkpoint(state), tiers=TIERS[2])


Pairs = dict[str, tuple[Tensor, Tensor]]


def make_pairs(seed: int = 1) -> Pairs:
    """A and B of each adapted layer, large enough to change most weights."""
    generator = torch.Generator().manual_seed(seed)
    resident = build(tower)
    result = {}
    for path in ADAPTED:
        rows, columns = resident.get_submodule(path).weight.shape
        result[path] = (
            torch.randn(RANK, columns, generator=generator) * 0.1,
            torch.randn(rows, RANK, generator=generator) * 0.1,
        )
    return result


def write_peft(folder: Path, pairs: Pairs, **config: Any) -> Path:
    folder.mkdir()
    tensors = {}
    for path, (down, up) in pairs.items():
        tensors[f"base_model.model.{path}.lora_A.weight"] = down
        tensors[f"base_model.model.{path}.lora_B.weight"] = up
    save_file(tensors, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none", **config}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def write_kohya(folder: Path, pairs: Pairs) -> Path:
    folder.mkdir()
    tensors = {}
    for path, (down, up) in pairs.items():
        name = "lora_unet_" + path.replace(".", "_")
        tensors[f"{name}.lora_down.weight"] = down
        tensors[f"{name}.lora_up.weight"] = up
        tensors[f"{name}.alpha"] = torch.tensor(ALPHA)
    tensors["lora_te_encoder_q.lora_down.weight"] = torch.zeros(RANK, 8)  # Of another model.
    tensors["lora_te_encoder_q.lora_up.weight"] = torch.zeros(8, RANK)
    save_file(tensors, folder / "adapter.safetensors")
    return folder / "adapter.safetensors"


def peft_merged(weight: Tensor, pair: tuple[Tensor, Tensor], scaling: float) -> Tensor:
    """peft.tuners.lora.layer.Linear: get_delta_weight(), and merge() without safe_merge."""
    down, up = pair
    merged = weight.clone()
    merged += (up @ down) * scaling
    return merged


class WithPeft(nn.Module):
    """peft.tuners.lora.layer.Linear.forward() of an adapter that is not merged."""

    def __init__(self, base: nn.Linear, pair: tuple[Tensor, Tensor], scaling: float) -> None:
        super().__init__()
        self.base, self.pair, self.scaling = base, pair, scaling

    def forward(self, hidden: Tensor) -> Tensor:
        down, up = self.pair
        result = self.base(hidden)
        dtype = result.dtype
        beside = functional.linear(functional.linear(hidden.to(down.dtype), down), up)
        return (result + beside * self.scaling).to(dtype)


def resident_merged(pairs: Pairs, scaling: float) -> nn.Module:
    resident = build(tower).to(torch.bfloat16)
    for path, pair in pairs.items():
        layer = resident.get_submodule(path)
        layer.weight.data = peft_merged(layer.weight.data, pair, scaling)
    return resident


def ulps(left: Tensor, right: Tensor) -> int:
    """The largest distance of two bf16 tensors in representable numbers."""
    ordered = [
        torch.where(bits < 0, -32768 - bits, bits)
        for bits in (t.contiguous().view(torch.int16).to(torch.int32) for t in (left, right))
    ]
    return int((ordered[0] - ordered[1]).abs().max())


def seen_weights(model: nn.Module, run: Callable[[], Any]) -> dict[str, Tensor]:
    """The weights that the adapted layers have while the model runs."""
    seen: dict[str, Tensor] = {}
    hooks = [
        model.get_submodule(path).register_forward_pre_hook(
            lambda module, args, path=path: seen.update({path: module.weight.clone()})
        )
        for path in ADAPTED
    ]
    run()
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("tiers", TIERS, ids=["disk", "ram", "mixed"])
@pytest.mark.parametrize("write", [write_peft, write_kohya])
def test_merged_as_peft_merges(
    pack: Path, tmp_path: Path, tiers: list[str], write: Callable[[Path, Pairs], Path]
) -> None:
    pairs = make_pairs()
    scaling = ALPHA / RANK
    resident = resident_merged(pairs, scaling)
    plan = trash_panda.Plan.load(pack / "plan.toml")
    for index, tier in enumerate(tiers):
        plan.assign(tier, indices=[index])
    with trash_panda.load(pack, on_meta(tower), plan=plan) as loaded:
        before = loaded.model(tokens())
        loaded.add_lora(write(tmp_path / "adapter", pairs))
        for _ in range(2):
            seen = seen_weights(loaded.model, lambda: loaded.model(tokens()))
            for path in ADAPTED:
                assert ulps(seen[path], resident.get_submodule(path).weight) <= 1, path
                resident.get_submodule(path).weight.data = seen[path]
            assert_bit_equal(loaded.model(tokens()), resident(tokens()))
        assert loaded.stats()["adapter_memory_bytes"] > 0
        loaded.set_lora("default", 0.0)
        assert_bit_equal(loaded.model(tokens()), before)
        loaded.set_lora("default", 1.0)
        assert_bit_equal(loaded.model(tokens()), resident(tokens()))
        loaded.remove_lora()
        assert_bit_equal(loaded.model(tokens()), before)
        assert loaded.loras == {}


def test_merged_weights_are_rounded_once(pack: Path) -> None:
    pairs = make_pairs()
    tensors = {
        f"{path}.lora_{half}.weight": tensor
        for path, pair in pairs.items()
        for half, tensor in zip("AB", pair, strict=True)
    }
    resident = build(tower).to(torch.bfloat16)
    with trash_panda.load(pack, on_meta(tower)) as loaded:
        loaded.add_lora(tensors, scale=0.5)
        seen = seen_weights(loaded.model, lambda: loaded.model(tokens()))
    for path, (down, up) in pairs.items():
        weight = resident.get_submodule(path).weight.double()
        exact = weight + 0.5 * (up.double() @ down.double())
        assert ulps(seen[path], exact.to(torch.bfloat16)) <= 1
        assert not torch.equal(seen[path], weight.to(torch.bfloat16))


def test_side_path_as_peft_computes(pack: Path, tmp_path: Path) -> None:
    pairs = make_pairs()
    resident = build(tower).to(torch.bfloat16)
    for path, pair in pairs.items():
        owner, _, name = path.rpartition(".")
        layer = resident.get_submodule(path)
        setattr(resident.get_submodule(owner), name, WithPeft(layer, pair, ALPHA / RANK))
    with trash_panda.load(pack, on_meta(tower)) as loaded:
        before = loaded.model(tokens())
        loaded.add_lora(write_peft(tmp_path / "adapter", pairs), mode="side")
        assert_bit_equal(loaded.model(tokens()), resident(tokens()))
        loaded.remove_lora()
        assert_bit_equal(loaded.model(tokens()), before)


def test_adapters_add_up(pack: Path, tmp_path: Path) -> None:
    first, second = make_pairs(1), make_pairs(2)
    with trash_panda.load(pack, on_meta(tower)) as loaded:
        loaded.add_lora(write_peft(tmp_path / "one", first), name="one")
        alone = loaded.model(tokens())
        loaded.add_lora(write_kohya(tmp_path / "two", second), name="two", scale=0.5)
        assert loaded.loras == {"one": 1.0, "two": 0.5}
        seen = seen_weights(loaded.model, lambda: loaded.model(tokens()))
        resident = build(tower).to(torch.bfloat16)
        for path in ADAPTED:
            delta = sum(
                s * (ab[path][1] @ ab[path][0]) * ALPHA / RANK
                for s, ab in ((1, first), (0.5, second))
            )
            exact = resident.get_submodule(path).weight.float() + delta
            assert ulps(seen[path], exact.to(torch.bfloat16)) <= 1
        loaded.remove_lora("two")
        assert_bit_equal(loaded.model(tokens()), alone)


def test_scales_of_a_config(pack: Path, tmp_path: Path) -> None:
    pairs = {path: pair for path, pair in make_pairs().items() if "0" in path or path == "head"}
    adapter = write_peft(
        tmp_path / "adapter", pairs, use_rslora=True, alpha_pattern={"layers.0.up": 2.0}
    )
    resident = build(tower).to(torch.bfloat16)
    with trash_panda.load(pack, on_meta(tower)) as loaded:
        loaded.add_lora(adapter)
        seen = seen_weights(loaded.model, lambda: loaded.model(tokens()))
    for path, pair in pairs.items():
        alpha = 2.0 if path == "layers.0.up" else ALPHA
        expected = peft_merged(resident.get_submodule(path).weight, pair, alpha / math.sqrt(RANK))
        assert ulps(seen[path], expected) <= 1


class ConvBlock(nn.Module):
    """A convolution, and transformers' transposed Linear."""

    def __init__(self) -> None:
        from transformers.pytorch_utils import Conv1D

        super().__init__()
        self.conv = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.turned = Conv1D(WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.conv(self.turned(hidden.movedim(1, -1)).movedim(-1, 1))


class ConvTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ConvBlock() for _ in range(LAYERS))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


@pytest.mark.parametrize("mode", ["merge", "side"])
def test_convolutions_and_transposed_layers(packs: PackFactory, mode: str) -> None:
    resident = build(ConvTower)
    generator = torch.Generator().manual_seed(5)
    adapter = {
        "layers.1.conv.lora_A.weight": torch.randn(RANK, WIDTH, 3, 3, generator=generator) / 20,
        "layers.1.conv.lora_B.weight": torch.randn(WIDTH, RANK, 1, 1, generator=generator) / 20,
        "layers.2.turned.lora_A.weight": torch.randn(RANK, WIDTH, generator=generator) / 20,
        "layers.2.turned.lora_B.weight": torch.randn(WIDTH, RANK, generator=generator) / 20,
    }
    pack = packs.pack(packs.checkpoint(resident.state_dict()), compute_dtype="fp32")
    hidden = torch.randn(1, WIDTH, 4, 4, generator=generator)
    # PEFT: conv2d's delta is the product of the flattened halves; fan_in_fan_out turns it.
    down, up = adapter["layers.1.conv.lora_A.weight"], adapter["layers.1.conv.lora_B.weight"]
    conv = resident.layers[1].conv.weight
    conv.data = conv.data + (up.flatten(1) @ down.flatten(1)).view(conv.shape)
    down, up = adapter["layers.2.turned.lora_A.weight"], adapter["layers.2.turned.lora_B.weight"]
    resident.layers[2].turned.weight.data += (up @ down).t()
    with trash_panda.load(pack, on_meta(ConvTower)) as loaded:
        loaded.add_lora(adapter, mode=mode)
        torch.testing.assert_close(loaded.model(hidden), resident(hidden), rtol=1e-4, atol=1e-5)


def test_refusals_change_nothing(pack: Path, tmp_path: Path) -> None:
    pairs = make_pairs()
    down, up = pairs["layers.0.up"]
    good = {"layers.0.up.lora_A.weight": down, "layers.0.up.lora_B.weight": up}
    with trash_panda.load(pack, on_meta(tower)) as loaded:
        before = loaded.model(tokens())
        wrong: list[tuple[type[Exception], str, Any]] = [
            (trash_panda.CheckpointError, "lacks one half", {"layers.0.up.lora_A.weight": down}),
            (
                trash_panda.CheckpointError,
                "layers.9.up",
                good | {"layers.9.up.lora_A.weight": down, "layers.9.up.lora_B.weight": up},
            ),
            (
                trash_panda.CheckpointError,
                "don't make",
                {"layers.0.up.lora_A.weight": down, "layers.0.up.lora_B.weight": up[1:]},
            ),
            (
                trash_panda.UnsupportedFormatError,
                "magnitude",
                good | {"layers.0.up.lora_magnitude_vector": up[:, 0]},
            ),
            (
                trash_panda.UnsupportedFormatError,
                "embedding",
                {
                    "embed.lora_A.weight": torch.zeros(RANK, WIDTH),
                    "embed.lora_B.weight": torch.zeros(100, RANK),
                },
            ),
            (
                trash_panda.UnsupportedFormatError,
                "use_dora",
                write_peft(tmp_path / "dora", pairs, use_dora=True),
            ),
            (trash_panda.CheckpointError, "no adapter", tmp_path / "absent.safetensors"),
            (
                trash_panda.UnsupportedFormatError,
                "torch.int8",
                {name: half.to(torch.int8) for name, half in good.items()},
            ),
            (
                trash_panda.UnsupportedFormatError,
                "meta device",
                {name: half.to("meta") for name, half in good.items()},
            ),
            (
                trash_panda.CheckpointError,
                "has 2 values",
                good | {"layers.0.up.alpha": torch.ones(2)},
            ),
            (ValueError, "mode", good),
        ]
        for kind, text, source in wrong:
            with pytest.raises(kind, match=text):
                loaded.add_lora(source, mode="other" if text == "mode" else "merge")
        for scale in (float("nan"), "1"):
            with pytest.raises(ValueError, match="not a number"):
                loaded.add_lora(good, scale=scale)
        assert loaded.loras == {}
        assert_bit_equal(loaded.model(tokens()), before)
        loaded.add_lora(good)
        with pytest.raises(ValueError, match="not a number"):
            loaded.set_lora("default", math.inf)
        assert loaded.loras == {"default": 1.0}
        with pytest.raises(trash_panda.TrashPandaError, match="already"):
            loaded.add_lora(good)
        with pytest.raises(trash_panda.TrashPandaError, match="it has default"):
            loaded.remove_lora("other")
    with pytest.raises(trash_panda.ReleasedError):
        loaded.add_lora(good)


def test_adapters_end_with_close(pack: Path) -> None:
    pairs = make_pairs()
    model = on_meta(tower)
    with trash_panda.load(pack, model) as loaded:
        before = loaded.model(tokens())
        for mode in ("merge", "side"):
            tensors = {f"head.lora_{k}.weight": t for k, t in zip("AB", pairs["head"], strict=True)}
            loaded.add_lora(tensors, name=mode, mode=mode)
    with trash_panda.load(pack, model) as again:
        assert_bit_equal(again.model(tokens()), before)
