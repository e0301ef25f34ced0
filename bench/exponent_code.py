#!/usr/bin/env python3
"""The exponent code beside the package `zipnn`, on the same bf16 weights and in the same run.

    python bench/exponent_code.py BF16_FILE [--program build/…/bench/exponent_code] [--rounds N]

Needs `pip install zipnn`. The file holds nothing but bf16 elements. In each round the program's
own round (memcpy, decoders, encoders) and zipnn's decoder on one thread take turns; rates are
bytes of decoded weights per CPU second, medians over the rounds.
"""

import argparse
import re
import statistics
import subprocess
import time

from zipnn import ZipNN

MIB = 1 << 20


def main() -> None:
    """Prints one line per decoder and encoder."""
    parser = argparse.ArgumentParser(description="The exponent code beside zipnn.")
    parser.add_argument("file")
    parser.add_argument("--program", default="build/release/bench/exponent_code")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=256)
    options = parser.parse_args()

    with open(options.file, "rb") as file:
        weights = file.read()
    weights *= -(-options.megabytes * MIB // len(weights))
    zipnn = ZipNN(bytearray_dtype="bfloat16", input_format="byte", threads=1)
    # It shuffles its input in place: give it a copy.
    coded = zipnn.compress(bytearray(weights))
    print(f"zipnn: {len(coded) / len(weights):.4f} of raw")

    rates: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        settings = ["--file", options.file, "--rounds", "1", "--megabytes", str(options.megabytes)]
        printed = subprocess.run(
            [options.program, *settings],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for name, rate in re.findall(r"^(.+?) +([0-9.]+) GB/s", printed, re.MULTILINE):
            rates.setdefault(name, []).append(float(rate))
        start_s = time.process_time()
        decoded = zipnn.decompress(coded)
        took_s = time.process_time() - start_s
        assert bytes(decoded) == weights
        rates.setdefault("decode zipnn", []).append(len(weights) / 1e9 / took_s)

    print(printed.splitlines()[0])
    base = statistics.median(rates["decode zipnn"])
    for name, values in rates.items():
        rate = statistics.median(values)
        print(f"{name:<20} {rate:8.2f} GB/s   {rate / base:6.2f} x zipnn's decoder")


if __name__ == "__main__":
    main()
