#!/usr/bin/env python3
"""Expansion of fp8 weights beside torch's `(w.float() * s).to(bfloat16)`, in the same run.

    python bench/expand.py [--program build/…/bench/expand] [--rounds N] [--megabytes N]

One thread each. In each round the program's own round (copy, implementations) and torch take
turns; rates are bytes of fp8 per CPU second, medians over the rounds.
"""

import argparse
import re
import statistics
import subprocess
import time

import torch

COLUMNS = 4096


def main() -> None:
    """Prints one line for torch, the copy and each implementation and kind of scale."""
    parser = argparse.ArgumentParser(description="Expansion beside torch.")
    parser.add_argument("--program", default="build/release/bench/expand")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=256)
    options = parser.parse_args()

    torch.set_num_threads(1)
    codes = torch.randint(0, 256, (options.megabytes * 2**20 // COLUMNS, COLUMNS))
    weight = codes.to(torch.uint8).view(torch.float8_e4m3fn)
    del codes
    scale = torch.tensor(0.0123)

    rates: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        printed = subprocess.run(
            [options.program, "--rounds", "1", "--megabytes", str(options.megabytes)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        start_s = time.process_time()
        (weight.float() * scale).to(torch.bfloat16)
        took_s = time.process_time() - start_s
        rates.setdefault("torch", []).append(weight.numel() / 1e9 / took_s)
        for name, rate in re.findall(r"^(.+?) +([0-9.]+) GB/s", printed, re.MULTILINE):
            rates.setdefault(name, []).append(float(rate))

    print(printed.splitlines()[0])
    base = statistics.median(rates["torch"])
    for name, values in rates.items():
        rate = statistics.median(values)
        print(f"{name:<24} {rate:8.2f} GB/s   {rate / base:6.2f} x torch")


if __name__ == "__main__":
    main()
