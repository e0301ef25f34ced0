"""Times repack and verify beside plain direct copies and reads of the same bytes, with dd.

    python bench/repack_speed.py --gb 4 --dir /a/drive/with/space [--program PATH] [--rounds 3]

Runs are cold (the page cache of the files is dropped before each) and interleaved: copy, repack,
copy, repack, ... so that what else the machine does meets both. Prints the medians and the ratios:

    none       rate of `repack --compress none` to that of the copy         wanted: >= 0.85
    exponent   time of the copy to that of `repack --compress exponent`     wanted: >= 1
    verify     rate of `verify` to that of a direct read of the same shards wanted: >= 0.95

The checkpoint is made of normally distributed bf16, which is what weights look like to the code.
Peak memory of each run is printed, too. Needs numpy; writes about three times the size, and removes
it again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import time

import numpy

BLOCKS_PER_GB = 10
COLUMNS = 8192


def write_checkpoint(path: pathlib.Path, size_bytes: int) -> None:
    """Blocks of about 100 MB, a matrix each."""
    block_count = max(2, size_bytes * BLOCKS_PER_GB // 10**9)
    rows = size_bytes // block_count // (2 * COLUMNS)
    block_bytes = rows * COLUMNS * 2
    header = {
        f"model.layers.{i}.mlp.weight": {
            "dtype": "BF16",
            "shape": [rows, COLUMNS],
            "data_offsets": [i * block_bytes, (i + 1) * block_bytes],
        }
        for i in range(block_count)
    }
    text = json.dumps(header).encode()
    generator = numpy.random.default_rng(1)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _ in range(block_count):
            values = generator.standard_normal(rows * COLUMNS, dtype=numpy.float32) * 0.02
            file.write((values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes())
        file.flush()
        os.fsync(file.fileno())


def drop_cache(path: pathlib.Path) -> None:
    with path.open("rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(command: list[str]) -> tuple[float, int]:
    """Seconds, and peak memory in bytes."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - start
    assert process.stderr is not None
    if status != 0:
        raise SystemExit(f"{command}: {process.stderr.read().decode()}")
    process.returncode = 0
    return elapsed, usage.ru_maxrss * 1024


class Bench:
    def __init__(self, folder: pathlib.Path, program: str) -> None:
        self.folder, self.program = folder, program
        self.model = folder / "model.safetensors"
        self.seconds: dict[str, list[float]] = {}
        self.peak_bytes: dict[str, int] = {}

    def note(self, name: str, result: tuple[float, int]) -> None:
        self.seconds.setdefault(name, []).append(result[0])
        self.peak_bytes[name] = max(self.peak_bytes.get(name, 0), result[1])

    def copy(self) -> None:
        drop_cache(self.model)
        target = self.folder / "copy"
        self.note(
            "copy",
            timed(
                ["dd", f"if={self.model}", f"of={target}", "bs=4M", "iflag=direct", "oflag=direct",
                 "conv=fsync"]
            ),
        )  # fmt: skip
        target.unlink()

    def repack(self, compress: str) -> pathlib.Path:
        drop_cache(self.model)
        target = self.folder / "pack"
        shutil.rmtree(target, ignore_errors=True)
        command = [self.program, "repack", str(self.model), "-o", str(target), "-q"]
        self.note(compress, timed([*command, "--compress", compress, "--reserve", "0"]))
        return target

    def verify(self, pack: pathlib.Path) -> None:
        shards = sorted(pack.glob("*.safetensors"))
        for shard in shards:
            drop_cache(shard)
        self.note("verify", timed([self.program, "verify", str(pack), "-q"]))
        start = time.perf_counter()
        for shard in shards:
            drop_cache(shard)
            timed(["dd", f"if={shard}", "of=/dev/null", "bs=4M", "iflag=direct"])
        self.note("read", (time.perf_counter() - start, 0))

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=4)
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--program", default="trash-panda")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folder = arguments.dir / "repack-speed"
    folder.mkdir()
    try:
        bench = Bench(folder, arguments.program)
        # In a process of its own: the memory of this one counts for all that it starts.
        size_bytes = int(arguments.gb * 10**9)
        writer = multiprocessing.Process(target=write_checkpoint, args=(bench.model, size_bytes))
        writer.start()
        writer.join()
        size_gb = bench.model.stat().st_size / 1e9
        for _ in range(arguments.rounds):
            bench.copy()
            bench.verify(bench.repack("none"))
            bench.copy()
            bench.repack("exponent")
        for name, seconds in bench.seconds.items():
            print(
                f"{name:9} {bench.median(name):7.2f} s  {size_gb / bench.median(name):6.2f} GB/s  "
                f"of {', '.join(f'{s:.2f}' for s in seconds)}  "
                f"peak {bench.peak_bytes[name] / 1e6:.0f} MB"
            )
        print(f"none     {bench.median('copy') / bench.median('none'):.2f} x the copy's rate")
        print(f"exponent {bench.median('copy') / bench.median('exponent'):.2f} x the copy's rate")
        print(f"verify   {bench.median('read') / bench.median('verify'):.2f} x a direct read's")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
