"""Weights that are away: they can be asked what they are, and for nothing else."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import trash_panda
from conftest import PackFactory
from models import Tower, assert_bit_equal, build, on_meta, tokens

LAYERS = 4
AWAY = r"layers\.1\.\w+\.weight is not in memory.*block layers\.1 .*call the block or the model"


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture(scope="module")
def pack(shared_packs: PackFactory) -> Path:
    return shared_packs.pack(shared_packs.checkpoint(build(tower).state_dict()))


@pytest.fixture(scope="module")
def expected() -> Tensor:
    return build(tower).to(torch.bfloat16)(tokens())


def ones(width: int) -> Tensor:
    return torch.ones(1, width, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "use",
    [
        # Without a bias torch gives uninitialised memory for a weight on the meta device.
        lambda layer: functional.linear(ones(128), layer.down.weight),
        lambda layer: layer.down(ones(128)),
        lambda layer: layer.norm(ones(64)),
        lambda layer: ones(64) * layer.norm.weight,
        lambda layer: torch.stack([layer.norm.weight, layer.norm.weight]),
        lambda layer: layer.down.weight.copy_(torch.ones(64, 128)),
        lambda layer: layer.down.weight.detach(),
        lambda layer: layer.down.weight.data,
        lambda layer: layer.down.weight.to("cpu"),
        lambda layer: layer.down.weight[0],
        lambda layer: layer.down.state_dict(),
        lambda layer: copy.deepcopy(layer.down),
        lambda layer: pickle.dumps(layer.down),
    ],
)
def test_a_weight_that_is_away_is_not_computed_with(
    pack: Path, expected: Tensor, use: Callable[[nn.Module], object]
) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        for _ in range(2):  # Before the first pass, and after one.
            with pytest.raises(trash_panda.TrashPandaError, match=AWAY):
                use(model.layers[1])
            assert_bit_equal(model(tokens()), expected)


def test_a_head_that_borrows_a_block_s_weight_is_refused(packs: PackFactory) -> None:
    class Borrowing(Tower):
        def forward(self, tokens: Tensor) -> Tensor:
            hidden = self.layers[1](self.embed(tokens))
            return functional.linear(hidden, self.layers[1].up.weight)

    pack = packs.pack(packs.checkpoint(build(tower).state_dict()))
    model = on_meta(lambda: Borrowing(LAYERS))
    with (
        trash_panda.load(pack, model),
        pytest.raises(trash_panda.TrashPandaError, match=AWAY),
    ):
        model(tokens())


def test_metadata_is_answered(pack: Path) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        weight = model.layers[1].down.weight
        assert isinstance(weight, nn.Parameter)
        assert weight.shape == weight.size() == (64, 128)
        assert (weight.dtype, weight.is_meta) == (torch.bfloat16, True)
        assert (weight.numel(), weight.dim(), weight.ndim, len(weight)) == (8192, 2, 2, 64)
        assert (weight.element_size(), weight.nbytes) == (2, 16384)
        assert weight.is_floating_point()
        assert weight.grad is None
        assert not weight.requires_grad
        assert "layers.1.down.weight" in repr(weight)
        assert "layers.1.down.weight" in f"{weight}"
        assert type(torch.zeros_like(weight, device="cpu")) is Tensor
        assert weight in set(model.parameters())
        model.requires_grad_(False)
        with pytest.raises(trash_panda.TrashPandaError, match="can't be trained"):
            model.layers[1].requires_grad_(True)


def test_what_is_made_like_a_weight_is_where_the_weight_is_computed_with(pack: Path) -> None:
    """As recurrent models make their first state: a tensor on meta would give garbage."""
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        weight = model.layers[1].down.weight
        assert weight.device == torch.device("cpu")
        for made in (weight.new_zeros(2, 3), torch.zeros_like(weight), weight.new_full((2,), 7)):
            assert (type(made), made.is_meta, made.dtype) == (Tensor, False, torch.bfloat16)
        assert torch.zeros_like(weight, device="meta").is_meta


MISSING = r"head\.weight has no value.*set it in the model"


def without(*names: str) -> dict[str, Tensor]:
    return {name: t for name, t in build(tower).state_dict().items() if name not in names}


@pytest.mark.parametrize("options", [{"strict": False}, {"ignore_missing": ["head.*"]}], ids=str)
def test_a_weight_that_may_be_missing_is_not_computed_with(
    packs: PackFactory, expected: Tensor, options: dict[str, object]
) -> None:
    pack = packs.pack(packs.checkpoint(without("head.weight")))
    model = on_meta(tower)
    for _ in range(2):  # Loaded anew, too.
        with trash_panda.load(pack, model, **options):
            assert "missing head.weight" in repr(model.head.weight)
            with pytest.raises(trash_panda.TrashPandaError, match=MISSING):
                model(tokens())
    with trash_panda.load(pack, model, **options):
        value = build(tower).to(torch.bfloat16).head.weight
        model.head.weight = nn.Parameter(value, requires_grad=False)
        assert_bit_equal(model(tokens()), expected)


def test_a_weight_of_a_block_that_is_missing_or_skipped_is_not_computed_with(
    packs: PackFactory,
) -> None:
    checkpoint = packs.checkpoint(without("layers.2.down.weight"))
    for _ in range(2):
        model = on_meta(tower)
        trash_panda.stream_load(model, checkpoint, skip_prefixes=["layers.2.down"])
        with pytest.raises(trash_panda.TrashPandaError, match=r"layers\.2\.down\.weight has no"):
            model(tokens())
        checkpoint = packs.checkpoint(build(tower).state_dict())


def test_a_real_weight_that_may_be_missing_stays(packs: PackFactory, expected: Tensor) -> None:
    pack = packs.pack(packs.checkpoint(without("head.weight")))
    model = on_meta(tower)
    model.head = build(tower).to(torch.bfloat16).head
    with trash_panda.load(pack, model, strict=False):
        assert_bit_equal(model(tokens()), expected)


def test_a_closed_model_s_tensors_say_that_they_were_released(pack: Path) -> None:
    model = on_meta(tower)
    trash_panda.load(pack, model).close()
    for weight in (model.layers[1].down.weight, model.head.weight):
        with pytest.raises(trash_panda.ReleasedError, match=r"released.*close\(\).*load"):
            weight.sum()


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("path", ["", "layers", "layers.1", "layers.1.down"])
def test_load_state_dict_changes_nothing(
    pack: Path, expected: Tensor, path: str, assign: bool
) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        part = model.get_submodule(path)
        state = build(tower).get_submodule(path).state_dict()
        state = {key: value * 2 for key, value in state.items()}
        with pytest.raises(trash_panda.TrashPandaError, match="repack"):
            part.load_state_dict(state, assign=assign)
        assert_bit_equal(model(tokens()), expected)


@pytest.mark.parametrize(
    "convert",
    [
        lambda model: model.half(),
        lambda model: model.float(),
        lambda model: model.to(torch.float64),
        lambda model: model.to("meta"),
        lambda model: model.to_empty(device="cpu"),
        lambda model: model.layers.half(),
    ],
)
def test_a_conversion_changes_nothing(
    pack: Path, expected: Tensor, convert: Callable[[nn.Module], nn.Module]
) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        with pytest.raises(trash_panda.TrashPandaError, match=r"compute_dtype and device"):
            convert(model)
        assert_bit_equal(model(tokens()), expected)


def test_a_conversion_to_its_own_dtype_leaves_tables_alone(pack: Path, expected: Tensor) -> None:
    """As the rotary tables of transformers' models, which are kept in fp32."""
    model = on_meta(tower)
    for part in (model, model.layers[1]):
        part.register_buffer("table", torch.ones(3), persistent=False)
    with trash_panda.load(pack, model):
        assert model.to("cpu", torch.bfloat16).bfloat16() is model
        assert model.table.dtype == model.layers[1].table.dtype == torch.float32
        for convert in (model.float, model.layers[1].half):
            with pytest.raises(trash_panda.TrashPandaError, match="compute_dtype"):
                convert()
        assert_bit_equal(model(tokens()), expected)


def test_a_conversion_to_what_it_is_already_passes(pack: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        assert model.to("cpu").cpu().to(torch.bfloat16).bfloat16() is model
        assert_bit_equal(model(tokens()), expected)
