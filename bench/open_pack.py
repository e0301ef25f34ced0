#!/usr/bin/env python3
"""What it costs to open a pack of very many tensors, beside Python's json reading its manifest.

    python bench/open_pack.py --dir FOLDER [--tensors 90000] [--program PATH] [--rounds N]

Makes a checkpoint of tiny tensors, named as those of a mixture of experts are, and its pack,
under FOLDER, and removes them again. Whole processes, warm, in turn: seconds of wall clock, CPU
seconds and peak memory as the kernel counts them. `verify --quick` reads and checks the manifest,
the plan and the headers of the shards, which are about as long as the manifest: their bytes are
read and hashed once, the physical limit of which is the line of `cat`.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import time

READ_JSON = "import json, sys; json.load(open(sys.argv[1], 'rb'))"
EXPERTS = 256


def write_checkpoint(path: pathlib.Path, count: int) -> None:
    """fp8 weights with their scales, three for each of 256 experts in a layer."""
    per_layer = 3 * EXPERTS
    header = {}
    for i in range(count // 2):
        layer, place = divmod(i, per_layer)
        expert, kind = divmod(place, 3)
        part = ("gate_proj", "up_proj", "down_proj")[kind]
        name = f"model.layers.{layer}.mlp.experts.{expert}.{part}.weight"
        at = 16 * i
        header[f"{name}_scale_inv"] = {
            "dtype": "F32", "shape": [1, 1], "data_offsets": [at, at + 4]
        }  # fmt: skip
        header[name] = {"dtype": "F8_E4M3", "shape": [3, 4], "data_offsets": [at + 4, at + 16]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"8" * (16 * (count // 2)))


def run(command: list[str]) -> tuple[float, float, int]:
    """Runs a command; returns seconds, CPU seconds and peak resident bytes."""
    start_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{command} ended with {child.returncode}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return time.perf_counter() - start_s, cpu_s, usage.ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--tensors", type=int, default=90_000)
    parser.add_argument("--program", default="trash-panda")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    folder = arguments.dir / "open-pack"
    folder.mkdir()
    try:
        model, pack = folder / "model.safetensors", folder / "model.panda"
        # In a process of its own: the memory of this one counts for all that it starts.
        writer = multiprocessing.Process(target=write_checkpoint, args=(model, arguments.tensors))
        writer.start()
        writer.join()
        run([arguments.program, "repack", str(model), "-o", str(pack), "-q", "--reserve", "0"])
        manifest = pack / "manifest.json"
        shards = [str(shard) for shard in pack.glob("*.safetensors")]
        print(f"{arguments.tensors} tensors, manifest of {manifest.stat().st_size / 1e6:.1f} MB")
        commands = {
            "verify --quick": [arguments.program, "verify", str(pack), "--quick", "-q"],
            "python json": [sys.executable, "-c", READ_JSON, str(manifest)],
            "cat": ["cat", str(manifest), *shards],
        }
        figures: dict[str, list[tuple[float, float, int]]] = {name: [] for name in commands}
        for _ in range(arguments.rounds + 1):  # The first round warms up and is dropped.
            for name, command in commands.items():
                figures[name].append(run(command))
        for name, rounds in figures.items():
            seconds, cpu_s, peak_bytes = (list(column) for column in zip(*rounds[1:], strict=True))
            print(
                f"{name:16} {statistics.median(seconds):6.3f} s ({min(seconds):.3f}.."
                f"{max(seconds):.3f})  CPU {statistics.median(cpu_s):6.3f} s  "
                f"peak {max(peak_bytes) / 1e6:.0f} MB"
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
