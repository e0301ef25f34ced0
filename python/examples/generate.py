"""A language model that streams: from_pretrained() and generate().

    python generate.py [FOLDER]

FOLDER is a model of transformers; without one, a tiny random Llama is made on the spot.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
import transformers

import trash_panda


def make_tiny_llama(folder: Path) -> Path:
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def main(folder: Path) -> None:
    # Plans and packs on the first call; the pack beside the folder serves the next ones.
    with trash_panda.from_pretrained(folder) as offloaded:
        print(offloaded.plan)
        prompt = torch.tensor([[1, 5, 9]])
        tokens = offloaded.model.generate(prompt, max_new_tokens=8, do_sample=False)
        print(tokens[0].tolist())
        print(f"weights took {offloaded.stats()['weight_memory_bytes_max']} bytes of memory")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(make_tiny_llama(Path(temporary) / "llama"))
