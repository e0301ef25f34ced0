#!/usr/bin/env python3
"""What streaming costs the thread that computes: a model in RAM beside the same in torch.

    .venv/bin/python bench/block_overhead.py [--width N] [--tokens N] [--rounds N] [--profile]

A decoder of 28 blocks of 12 tensors is packed uncoded in its compute dtype and loaded with all
blocks in RAM. Passes of it and of the plain model take turns in one process and one thread, whose
CPU time counts. Of a model whose blocks compute next to nothing, the difference is the cost of a
block call; of one with blocks of a usable width, the ratio is what a user notices. Medians, with
the quartiles, and the difference of the fastest passes, which a busy machine disturbs least.
The first line again, for blocks that are read from disk for each use, is the cost of a streamed
call: what reads take on other threads is not in it.
"""

import argparse
import cProfile
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import trash_panda

BLOCK_COUNT = 28  # As Qwen2.5-7B and Llama-3.2-3B have.
HEAD_WIDTH = 64


class Block(nn.Module):
    """A decoder layer: attention with biases, gated feed-forward, two norms; 12 tensors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(width)
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.o = nn.Linear(width, width, bias=False)
        self.norm2 = nn.RMSNorm(width)
        self.gate = nn.Linear(width, 4 * width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states in and out, [tokens, width]."""
        normed = self.norm1(hidden)
        heads = (normed.shape[0], -1, HEAD_WIDTH)
        q, k, v = (p(normed).view(heads).transpose(0, 1) for p in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + self.o(mixed.transpose(0, 1).reshape(hidden.shape))
        normed = self.norm2(hidden)
        return hidden + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """Nothing but blocks."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(BLOCK_COUNT))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


def run_program(*arguments: str | Path) -> None:
    program = Path(sys.executable).with_name("trash-panda")
    subprocess.run([program, "--quiet", *arguments], check=True, stdout=subprocess.DEVNULL)


def make_models(
    width: int, folder: Path, tier: str = "ram"
) -> tuple[nn.Module, trash_panda.Offloaded]:
    """The plain model, and the same one streaming."""
    torch.manual_seed(0)
    plain = Decoder(width).to(torch.bfloat16).eval().requires_grad_(False)
    name = f"{width}-{tier}"
    checkpoint = folder / f"{name}.safetensors"
    save_file(plain.state_dict(), checkpoint)
    plan, pack = folder / f"{name}.toml", folder / f"{name}.panda"
    run_program("plan", checkpoint, "-o", plan, "--assign", f"{tier}=*")
    run_program("repack", checkpoint, "--plan", plan, "-o", pack, "--compress", "none")
    with torch.device("meta"):
        model = Decoder(width)
    return plain, trash_panda.load(pack, model)


def measure(
    plain: nn.Module, streamed: nn.Module, hidden: Tensor, rounds: int
) -> list[list[float]]:
    """Seconds of each pass: of the plain model, of the streamed one."""
    times: list[list[float]] = [[], []]
    with torch.inference_mode():
        assert torch.equal(plain(hidden), streamed(hidden))
        for number in range(rounds):
            # Whoever comes second finds the caches warm: they take turns.
            for which in (0, 1) if number % 2 else (1, 0):
                start_s = time.thread_time()
                (plain, streamed)[which](hidden)
                times[which].append(time.thread_time() - start_s)
    return times


def quartiles(values: list[float]) -> str:
    low, median, high = statistics.quantiles(values, n=4)
    return f"{median:.4g} ({low:.4g} to {high:.4g})"


def main() -> None:
    """Prints a line for the cost of a call, and one for the ratio."""
    parser = argparse.ArgumentParser(description="The cost of hooks with everything resident.")
    parser.add_argument("--width", type=int, default=1024, help="of the usable model")
    parser.add_argument("--tokens", type=int, default=1, help="that a pass of it computes")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--profile", action="store_true", help="show where calls spend their time")
    options = parser.parse_args()
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as folder:
        hidden = torch.ones(1, HEAD_WIDTH, dtype=torch.bfloat16)
        for tier, what in (("ram", "block call"), ("disk", "streamed block call")):
            plain, small = make_models(HEAD_WIDTH, Path(folder), tier)
            times = measure(plain, small.model, hidden, 10 * options.rounds)
            costs = [(s - p) * 1e6 / BLOCK_COUNT for p, s in zip(*times, strict=True)]
            least = (min(times[1]) - min(times[0])) * 1e6 / BLOCK_COUNT
            print(f"cost of a {what}: {quartiles(costs)} us; of the fastest passes {least:.3g} us")
            if options.profile:
                with torch.inference_mode(), cProfile.Profile() as profiler:
                    for _ in range(200):
                        small.model(hidden)
                pstats.Stats(profiler).sort_stats("tottime").print_stats(25)

        plain, wide = make_models(options.width, Path(folder))
        hidden = torch.ones(options.tokens, options.width, dtype=torch.bfloat16)
        times = measure(plain, wide.model, hidden, options.rounds)
        ratios = [s / p for p, s in zip(*times, strict=True)]
        size = sum(p.nbytes for p in plain.parameters()) / 1e9
        print(
            f"{BLOCK_COUNT} blocks, {size:.2f} GB, {options.tokens} tokens: plain "
            f"{quartiles([1e3 * s for s in times[0]])} ms a pass, streamed {quartiles(ratios)} x"
        )


if __name__ == "__main__":
    main()
