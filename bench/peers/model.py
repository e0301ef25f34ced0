"""Writes the model that the benchmark of peers streams: a folder as transformers has it.

    python bench/peers/model.py FOLDER --blocks 30

A Llama of width 2048 and 134 MB a block in bf16, with a small vocabulary so that nearly all bytes
are in blocks. Weights are normally distributed, which is what weights look like to a code, and the
same on every machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WIDTH = 2048
FEED_FORWARD = 8192
HEADS = 16
VOCABULARY = 1024
DEVIATION = 0.02  # Of weights at initialisation, as Llama's own config has it.
BLOCK_BYTES = 2 * (4 * WIDTH * WIDTH + 3 * WIDTH * FEED_FORWARD + 2 * WIDTH)


def config(blocks: int) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=blocks,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        vocab_size=VOCABULARY,
        rms_norm_eps=1e-5,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        architectures=["LlamaForCausalLM"],
        dtype="bfloat16",
    )


def write_model(folder: Path, blocks: int) -> None:
    """The checkpoint comes last: a folder that has one is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    config(blocks).save_pretrained(folder)
    # Nothing is tokenized, but some peers open a model together with its tokenizer.
    words = {f"t{i}": i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="t0").save_pretrained(folder)
    with torch.device("meta"):
        empty = LlamaForCausalLM(config(blocks))
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for name, parameter in empty.named_parameters():
        weight = torch.empty(parameter.shape, dtype=torch.bfloat16)
        is_norm = weight.dim() == 1
        weights[name] = (
            weight.fill_(1) if is_norm else weight.normal_(0, DEVIATION, generator=generator)
        )
    partial = folder / "model.safetensors.partial"
    save_file(weights, partial, metadata={"format": "pt"})
    partial.rename(folder / "model.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--blocks", type=int, default=30)
    arguments = parser.parse_args()
    write_model(arguments.folder, arguments.blocks)


if __name__ == "__main__":
    main()
