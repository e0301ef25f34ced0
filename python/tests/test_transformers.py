"""Models of transformers, tiny and random, streamed equal to resident."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import trash_panda
from conftest import PackFactory
from models import assert_bit_equal, on_meta, tokens

transformers = pytest.importorskip("transformers")

LAYERS = 4


def llama(**changes: object) -> object:
    return transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        **changes,
    )


def bert() -> object:
    return transformers.BertConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        max_position_embeddings=64,
    )


def gpt2() -> object:
    return transformers.GPT2Config(
        vocab_size=128, n_embd=64, n_layer=LAYERS, n_head=4, n_positions=64
    )


MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(llama()),
    "llama tied": lambda: transformers.LlamaForCausalLM(llama(tie_word_embeddings=True)),
    "bert": lambda: transformers.BertModel(bert()),
    "bert with head": lambda: transformers.BertForMaskedLM(bert()),
    "gpt2": lambda: transformers.GPT2LMHeadModel(gpt2()),
}
TIERS = {
    "disk": ["disk"] * LAYERS,
    "ram": ["ram"] * LAYERS,
    "mixed": ["disk", "ram"] * (LAYERS // 2),
}


def save(make: Callable[[], torch.nn.Module], folder: Path) -> Path:
    torch.manual_seed(1)
    make().save_pretrained(folder)
    return folder


def outputs(model: torch.nn.Module) -> torch.Tensor:
    return model(tokens())[0]


@pytest.mark.parametrize("tiers", TIERS.values(), ids=TIERS.keys())
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_equals_from_pretrained(
    packs: PackFactory,
    make: Callable[[], torch.nn.Module],
    tiers: list[str],
    dtype: str,
) -> None:
    folder = save(make, packs.folder / "model")
    model = on_meta(make)
    resident = type(model).from_pretrained(
        folder, dtype={"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    )
    pack = packs.pack(folder, tiers=tiers, compute_dtype=dtype)
    with torch.no_grad(), trash_panda.load(pack, model) as offloaded:
        for _ in range(2):
            assert_bit_equal(outputs(model), outputs(resident))
        assert offloaded.stats()["mispredict_count"] == 0
        assert offloaded.unexpected == []
        assert model.dtype == resident.dtype


def test_generates_the_same_tokens(packs: PackFactory) -> None:
    make = MODELS["llama tied"]
    folder = save(make, packs.folder / "model")
    resident = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    pack = packs.pack(folder, tiers=TIERS["mixed"])
    arguments = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    model = on_meta(make)
    with trash_panda.load(pack, model):
        streamed = model.generate(tokens(), **arguments)
    assert torch.equal(streamed, resident.generate(tokens(), **arguments))


def test_a_bare_model_loads_from_a_checkpoint_with_a_head(packs: PackFactory) -> None:
    folder = save(MODELS["bert with head"], packs.folder / "model")
    pack = packs.pack(folder, tiers=TIERS["mixed"])
    resident = transformers.BertModel.from_pretrained(
        folder, dtype=torch.bfloat16, add_pooling_layer=False
    )
    model = on_meta(lambda: transformers.BertModel(bert(), add_pooling_layer=False))
    with torch.no_grad(), trash_panda.load(pack, model) as offloaded:
        assert_bit_equal(outputs(model), outputs(resident))
        assert all(name.startswith("cls.") for name in offloaded.unexpected)


def test_a_model_with_a_head_loads_from_a_bare_checkpoint(packs: PackFactory) -> None:
    make = lambda: transformers.LlamaModel(llama(tie_word_embeddings=True))  # noqa: E731
    folder = save(make, packs.folder / "model")
    pack = packs.pack(folder, tiers=TIERS["mixed"])
    resident = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model = on_meta(MODELS["llama tied"])
    with torch.no_grad(), trash_panda.load(pack, model):
        assert_bit_equal(outputs(model), outputs(resident))
