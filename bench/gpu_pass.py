#!/usr/bin/env python3
"""Passes of a transformer whose blocks stream to a GPU, beside what no pass can beat.

    python bench/gpu_pass.py --dir /a/drive/with/space [--blocks 28] [--width 4096] [--tokens 512]
        [--resident 0,0.18,0.24] [--rounds 3] [--passes 5] [--json FILE]

The model is a bf16 decoder of equal blocks with random weights. For each share of resident blocks
the rest waits in RAM, pinned; these are measured in turns, `--rounds` times:

    link       copies of pinned memory of a block's size to the GPU, by torch
    compute    a pass of the same model in plain torch: whole if it fits, else one block as often
    async      passes as the engine makes them: copies beside computation
    sync       the same with TRASH_PANDA_SYNCHRONOUS=1: every copy is waited for
    coded      passes of the pack in the exponent code, which crosses the link as it is

Prints medians, what bounds a pass (the longer of link and compute) and the ratios, and writes them
with --json. Without a GPU it says so and measures nothing. Other tools' published figures for such
a comparison, synchronous to asynchronous: 20.3 to 8.7 s and 15.1 to 6.7 s with 18 to 24 % resident
on one GPU, 6.05 to 3.71 and 4.56 to 3.09 s on another.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

import trash_panda

HEAD_WIDTH = 64


class Block(nn.Module):
    """A decoder layer: attention and a gated feed-forward, 12 x width x width weights and more."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.RMSNorm(width)
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states in and out, [tokens, width]."""
        heads = self.qkv(self.norm1(hidden)).view(hidden.shape[0], 3, -1, HEAD_WIDTH)
        q, k, v = heads.permute(1, 2, 0, 3)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(0, 1).reshape(hidden.shape))
        normed = self.norm2(hidden)
        return hidden + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """Nothing but blocks."""

    def __init__(self, width: int, block_count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(block_count))

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return hidden


class Packs:
    """A checkpoint of random weights, and packs of it."""

    def __init__(self, folder: Path, width: int, block_count: int) -> None:
        self.width, self.block_count = width, block_count
        torch.manual_seed(0)
        with torch.device("meta"):
            names = Decoder(width, 1).state_dict()
        tensors = {}
        for name, meta in names.items():
            for block in range(block_count):
                values = torch.randn(meta.shape) * 0.02 if meta.ndim > 1 else torch.ones(meta.shape)
                tensors[name.replace("layers.0.", f"layers.{block}.")] = values.bfloat16()
        self.block_bytes = sum(t.nbytes for t in tensors.values()) // block_count
        checkpoint = folder / "model.safetensors"
        save_file(tensors, checkpoint)
        plan = folder / "plan.toml"
        _run("plan", checkpoint, "-o", plan, "--assign", "ram=*", "--probe", "never")
        self.raw, self.coded = folder / "raw.panda", folder / "coded.panda"
        for pack, code in ((self.raw, "none"), (self.coded, "exponent")):
            _run("repack", checkpoint, "--plan", plan, "-o", pack, "--compress", code)

    def empty(self) -> Decoder:
        with torch.device("meta"):
            return Decoder(self.width, self.block_count).to(torch.bfloat16)

    def load(self, pack: Path, resident_count: int, device: str) -> trash_panda.Offloaded:
        """The model with so many blocks resident, spread over it."""
        plan = trash_panda.Plan.from_toml((pack / "plan.toml").read_text(), "plan")
        step = self.block_count / max(resident_count, 1)
        resident = [int((number + 0.5) * step) for number in range(resident_count)]
        plan.assign("gpu", indices=resident)
        return trash_panda.load(pack, self.empty(), plan=plan, device=device)


def _run(*arguments: str | Path) -> None:
    program = Path(sys.executable).with_name("trash-panda")
    name = str(program) if program.exists() else "trash-panda"
    subprocess.run([name, "--quiet", *arguments], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def synchronous(wanted: bool):  # type: ignore[no-untyped-def]
    """For models that are loaded meanwhile."""
    before = os.environ.get("TRASH_PANDA_SYNCHRONOUS")
    os.environ["TRASH_PANDA_SYNCHRONOUS"] = "1" if wanted else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["TRASH_PANDA_SYNCHRONOUS"]
        else:
            os.environ["TRASH_PANDA_SYNCHRONOUS"] = before


def timed_passes(
    run: Callable[[], object], count: int, synchronize: Callable[[], object]
) -> list[float]:
    """Seconds of each pass but the first, which also brings in what stays."""
    seconds = []
    with torch.inference_mode():
        for _ in range(count + 1):
            start_s = time.perf_counter()
            run()
            synchronize()
            seconds.append(time.perf_counter() - start_s)
    return seconds[1:]


def link_rate(size_bytes: int, synchronize: Callable[[], object]) -> float:
    """Bytes a second of copies of pinned memory."""
    host = torch.empty(size_bytes, dtype=torch.uint8).pin_memory()
    target = torch.empty_like(host, device="cuda")
    copy = lambda: target.copy_(host, non_blocking=True)  # noqa: E731
    return size_bytes / statistics.median(timed_passes(copy, 8, synchronize))


def compute_passes(
    packs: Packs, hidden: Tensor, count: int, synchronize: Callable[[], object]
) -> list[float]:
    """Of the model in plain torch; where it does not fit, one block as often as there are."""
    free_bytes, _ = torch.cuda.mem_get_info()
    fits = packs.block_count * packs.block_bytes < 0.8 * free_bytes
    model = Decoder(packs.width, packs.block_count if fits else 1).to(hidden.device, hidden.dtype)
    times = 1 if fits else packs.block_count

    def run() -> None:
        for _ in range(times):
            model(hidden)

    return timed_passes(run, count, synchronize)


def streamed_passes(
    packs: Packs,
    pack: Path,
    hidden: Tensor,
    synchronize: Callable[[], object],
    *,
    resident_count: int,
    count: int,
    is_synchronous: bool = False,
    device: str = "cuda",
) -> tuple[list[float], Tensor]:
    """Seconds of passes, and what a pass gives."""
    with synchronous(is_synchronous), packs.load(pack, resident_count, device) as offloaded:
        seconds = timed_passes(lambda: offloaded.model(hidden), count, synchronize)
        with torch.inference_mode():
            return seconds, offloaded.model(hidden).cpu()


def measure(packs: Packs, share: float, options: argparse.Namespace) -> dict[str, Any]:
    """Rounds for one share of resident blocks."""
    synchronize = torch.cuda.synchronize
    resident_count = round(share * packs.block_count)
    hidden = torch.ones(options.tokens, packs.width, dtype=torch.bfloat16, device="cuda")
    found: dict[str, list[float]] = {name: [] for name in ("compute", "async", "sync", "coded")}
    rates = []
    results = []
    for _ in range(options.rounds):
        rates.append(link_rate(packs.block_bytes, synchronize))
        found["compute"] += compute_passes(packs, hidden, options.passes, synchronize)
        torch.cuda.empty_cache()
        for name, pack in (("async", packs.raw), ("sync", packs.raw), ("coded", packs.coded)):
            seconds, result = streamed_passes(
                packs,
                pack,
                hidden,
                synchronize,
                resident_count=resident_count,
                count=options.passes,
                is_synchronous=name == "sync",
            )
            found[name] += seconds
            results.append(result)
    streamed_bytes = (packs.block_count - resident_count) * packs.block_bytes
    medians = {f"{name}_s": statistics.median(seconds) for name, seconds in found.items()}
    return summary(share, streamed_bytes, statistics.median(rates), medians) | {
        "bit_identical": all(torch.equal(result, results[0]) for result in results)
    }


def summary(
    share: float, streamed_bytes: int, link_bytes_per_s: float, medians: dict[str, float]
) -> dict[str, Any]:
    """One share's figures with their bound and ratios."""
    link_s = streamed_bytes / link_bytes_per_s
    bound_s = max(link_s, medians["compute_s"])
    return {
        "resident_share": share,
        "streamed_bytes": streamed_bytes,
        "link_bytes_per_s": link_bytes_per_s,
        "link_s": link_s,
        **medians,
        "bound_s": bound_s,
        "async_to_bound": medians["async_s"] / bound_s,
        "sync_to_async": medians["sync_s"] / medians["async_s"],
        "coded_to_async": medians["coded_s"] / medians["async_s"],
    }


def print_table(lines: list[dict[str, Any]]) -> None:
    print("resident   link  compute  bound   async  : bound    sync  : async   coded  : async")
    for line in lines:
        print(
            f"{line['resident_share']:8.0%} {line['link_s']:6.3f} {line['compute_s']:8.3f} "
            f"{line['bound_s']:6.3f} {line['async_s']:7.3f} {line['async_to_bound']:8.2f} "
            f"{line['sync_s']:7.3f} {line['sync_to_async']:8.2f} {line['coded_s']:7.3f} "
            f"{line['coded_to_async']:8.2f}"
        )


def main() -> int:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--blocks", type=int, default=28)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--resident", default="0,0.18,0.24", help="shares of the blocks")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=5, help="of each round")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print(f"gpu_pass: nothing is measured: torch {torch.__version__} finds no NVIDIA GPU")
        return 0
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        packs = Packs(Path(folder), options.width, options.blocks)
        shares = [float(share) for share in options.resident.split(",")]
        lines = [measure(packs, share, options) for share in shares]
    print(
        f"{options.blocks} blocks of {packs.block_bytes / 1e6:.0f} MB, {options.tokens} tokens; s"
    )
    print_table(lines)
    if options.json:
        document = {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "trash_panda": trash_panda.__version__,
            "machine": platform.machine(),
            "block_bytes": packs.block_bytes,
            "block_count": options.blocks,
            "tokens": options.tokens,
            "shares": lines,
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0 if all(line["bit_identical"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
