"""Checkpoints whose keys are not the model's: a library's conversions, and the user's key_map."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import trash_panda
from architectures import ARCHITECTURES, build, outputs
from conftest import PackFactory
from models import Tower, assert_bit_equal, on_meta, tokens
from models import build as build_tower
from trash_panda import _native

transformers = pytest.importorskip("transformers")

MIXTRAL = ARCHITECTURES["mixtral"]
LAYERS = 4


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture(scope="module")
def mixtral(shared_packs: PackFactory) -> Path:
    """A checkpoint with a tensor for each expert, as the model's authors publish it."""
    folder = shared_packs.folder / "mixtral"
    build(MIXTRAL).save_pretrained(folder)
    return folder


def stored(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_the_checkpoint_has_other_tensors_than_the_model(mixtral: Path) -> None:
    assert "model.layers.0.block_sparse_moe.experts.3.w1.weight" in stored(mixtral)
    assert "model.layers.0.mlp.experts.gate_up_proj" in dict(
        on_meta(MIXTRAL.make).named_parameters()
    )


def test_merged_weights_are_away_with_their_block(packs: PackFactory, mixtral: Path) -> None:
    pack = packs.pack(mixtral, tiers=["disk"] * LAYERS)
    model = on_meta(MIXTRAL.make)
    experts = model.model.layers[1].mlp.experts
    with trash_panda.load(pack, model) as offloaded:
        outputs(model, MIXTRAL.inputs())
        # One block's: it is used again by the next.
        weights = (experts.gate_up_proj, experts.down_proj)
        assert offloaded.stats()["merged_memory_bytes"] == sum(w.numel() * 2 for w in weights)
        assert all(parameter.is_meta for parameter in model.model.layers.parameters())
        with pytest.raises(trash_panda.TrashPandaError, match=r"gate_up_proj is not in memory"):
            experts.gate_up_proj.sum()


def test_plans_leave_room_for_merged_weights(mixtral: Path) -> None:
    model = on_meta(MIXTRAL.make)
    experts = model.model.layers[1].mlp.experts
    merged = 2 * (experts.gate_up_proj.numel() + experts.down_proj.numel())
    budgets = [
        _native.parse_plan(made.to_toml(), "plan")["ram_budget_bytes"]
        for made in (
            trash_panda.plan(None, mixtral, max_ram="1GB", min_free_ram=0),
            trash_panda.plan(model, mixtral, max_ram="1GB", min_free_ram=0),
        )
    ]
    assert budgets == [10**9, 10**9 - merged]
    # Too small for both, but not for the model alone: told, not refused.
    with pytest.raises(trash_panda.DoesNotFitError) as refused:
        trash_panda.plan(None, mixtral, max_ram=1000, min_free_ram=0)
    least = refused.value.needed
    tight = trash_panda.plan(model, mixtral, max_ram=least, min_free_ram=0)
    assert any("come on top" in warning for warning in tight.warnings)


def test_an_expert_that_is_missing_is_told_by_its_conversion(
    packs: PackFactory, mixtral: Path
) -> None:
    state = stored(mixtral)
    for layer in range(LAYERS):
        del state[f"model.layers.{layer}.block_sparse_moe.experts.2.w2.weight"]
    pack = packs.pack(packs.checkpoint(state))
    model = on_meta(MIXTRAL.make)
    with pytest.raises(
        trash_panda.CheckpointError, match=r"down_proj.*shape \[4, .*MergeModulelist.*\[3, "
    ):
        trash_panda.load(pack, model)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_experts_that_do_not_go_together_are_told(packs: PackFactory, mixtral: Path) -> None:
    state = stored(mixtral)
    for layer in range(LAYERS):
        name = f"model.layers.{layer}.block_sparse_moe.experts.1.w1.weight"
        state[name] = state[name][:-1].clone()
    pack = packs.pack(packs.checkpoint(state))
    with pytest.raises(
        trash_panda.CheckpointError, match=r"gate_up_proj.*can't be made.*Concatenate of"
    ):
        trash_panda.load(pack, on_meta(MIXTRAL.make))


def test_a_key_map_renames(packs: PackFactory) -> None:
    resident = build_tower(tower)
    state = {
        f"net.{name}".replace("net.layers", "blocks"): value
        for name, value in resident.state_dict().items()
    }
    pack = packs.pack(packs.checkpoint(state))

    def rename(key: str) -> str:
        return key.removeprefix("net.").replace("blocks", "layers")

    with pytest.raises(trash_panda.MissingTensorsError):
        trash_panda.load(pack, on_meta(tower))
    expected = resident.to(torch.bfloat16)(tokens())
    for key_map in (rename, {key: rename(key) for key in state}):
        model = on_meta(tower)
        with trash_panda.load(pack, model, key_map=key_map):
            for _ in range(2):
                assert_bit_equal(model(tokens()), expected)


def test_a_key_map_drops_what_it_calls_none(packs: PackFactory) -> None:
    pack = packs.pack(packs.checkpoint(build_tower(tower).state_dict()))
    with pytest.raises(trash_panda.MissingTensorsError, match=r"head\.weight"):
        trash_panda.load(pack, on_meta(tower), key_map={"head.weight": None})


@pytest.mark.parametrize(
    ("key_map", "error", "told"),
    [
        ({"head.weight": "embed.weight"}, ValueError, "both embed.weight and head.weight"),
        (lambda key: 7, TypeError, "gave 7 for"),
    ],
)
def test_a_wrong_key_map_is_refused(
    packs: PackFactory, key_map: object, error: type[Exception], told: str
) -> None:
    pack = packs.pack(packs.checkpoint(build_tower(tower).state_dict()))
    model = on_meta(tower)
    with pytest.raises(error, match=told):
        trash_panda.load(pack, model, key_map=key_map)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_other_operations_are_computed_by_the_library(packs: PackFactory) -> None:
    from transformers.conversion_mapping import register_checkpoint_conversion_mapping
    from transformers.core_model_loading import Chunk, Transpose, WeightConverter

    class Fused(transformers.LlamaForCausalLM):
        """Its checkpoints have gate and up in one tensor, and down the other way round."""

    register_checkpoint_conversion_mapping(
        "Fused",
        [
            WeightConverter(
                "mlp.gate_up.weight",
                ["mlp.gate_proj.weight", "mlp.up_proj.weight"],
                [Chunk(dim=0)],
            ),
            WeightConverter("mlp.down.weight", "mlp.down_proj.weight", [Transpose(0, 1)]),
        ],
        overwrite=True,
    )
    llama = ARCHITECTURES["llama"]
    state = build(llama).state_dict()
    for layer in range(LAYERS):
        mlp = f"model.layers.{layer}.mlp."
        halves = [state.pop(mlp + part + "_proj.weight") for part in ("gate", "up")]
        state[mlp + "gate_up.weight"] = torch.cat(halves)
        state[mlp + "down.weight"] = state.pop(mlp + "down_proj.weight").t()
    pack = packs.pack(
        packs.checkpoint(state), tiers=["disk", "ram"] * (LAYERS // 2), compute_dtype="fp32"
    )
    model = on_meta(lambda: Fused(llama.make_config()))
    expected = outputs(build(llama), llama.inputs())
    with trash_panda.load(pack, model):
        for _ in range(2):
            for ours, theirs in zip(outputs(model, llama.inputs()), expected, strict=True):
                assert_bit_equal(ours, theirs)
