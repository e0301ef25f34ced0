"""Times the disk as the probe does beside fio, on the same file with the same settings.

    python bench/disk_probe.py --dir /a/drive/with/space [--gb 2] [--program PATH] [--rounds 5]

Runs alternate: probe, fio for each setting of the probe's grid that is named below, probe, ... so
that what else the machine does meets both. Prints the median of both for each setting, and the
median of the rounds' ratios; wanted: within 10 %.

Both read into huge pages, as streaming does: with small ones a virtual drive was seen to give 0.6
of the rate. fio's come from the kernel's pool, so there must be some:

    echo 64 > /proc/sys/vm/nr_hugepages

Needs fio; writes a file of --gb, and removes it again.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import tempfile

MIB = 1024 * 1024
SETTINGS = [(1 * MIB, 8), (4 * MIB, 8), (8 * MIB, 8)]  # Bytes of a request, depth of the queue.


def write_checkpoint(path: pathlib.Path, size_bytes: int) -> None:
    header = {"x": {"dtype": "U8", "shape": [size_bytes], "data_offsets": [0, size_bytes]}}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        chunk = os.urandom(64 * MIB)
        for begin in range(0, size_bytes, len(chunk)):
            file.write(chunk[: size_bytes - begin])
        file.flush()
        os.fsync(file.fileno())


def probe_rates(
    program: str, folder: pathlib.Path, effort: list[str]
) -> dict[tuple[int, int], float]:
    """Bytes per second that a fresh probe of the folder's drive finds, by setting."""
    done = subprocess.run(
        [program, "hwreport", "--json", *effort, "--path", folder],
        check=True, capture_output=True,
    )  # fmt: skip
    (disk,) = json.loads(done.stdout)["disks"]
    return {
        (trial["request_bytes"], trial["queue_depth"]): trial["read_bytes_per_s"]
        for trial in disk["direct"]
    }


def fio_rate(path: pathlib.Path, request_bytes: int, depth: int, runtime_s: float) -> float:
    done = subprocess.run(
        ["fio", "--name=read", f"--filename={path}", "--readonly", "--rw=read", "--direct=1",
         "--ioengine=io_uring", "--iomem=mmaphuge", f"--bs={request_bytes}",
         f"--iodepth={depth}", "--time_based", f"--runtime={runtime_s}", "--output-format=json"],
        check=True, capture_output=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)["jobs"][0]["read"]["bw_bytes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=2)
    parser.add_argument("--program", default=shutil.which("trash-panda") or "trash-panda")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="the thorough probe, a minute each")
    parser.add_argument("--fio-seconds", type=int, default=2)
    arguments = parser.parse_args()
    effort = ["--full"] if arguments.full else []
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="disk-probe-") as folder:
        path = pathlib.Path(folder) / "model.safetensors"
        write_checkpoint(path, int(arguments.gb * 1e9))
        ours: dict[tuple[int, int], list[float]] = {setting: [] for setting in SETTINGS}
        fio: dict[tuple[int, int], list[float]] = {setting: [] for setting in SETTINGS}
        for _ in range(arguments.rounds):
            rates = probe_rates(arguments.program, pathlib.Path(folder), effort)
            for setting in SETTINGS:
                ours[setting].append(rates[setting])
                fio[setting].append(fio_rate(path, *setting, arguments.fio_seconds))
    print(f"median of {arguments.rounds} rounds, GB/s")
    print("request  depth  probe    fio  probe / fio (median of the rounds' ratios)")
    for request_bytes, depth in SETTINGS:
        a, b = ours[request_bytes, depth], fio[request_bytes, depth]
        ratios = [mine / theirs for mine, theirs in zip(a, b, strict=True)]
        print(
            f"{request_bytes // MIB:3} MiB {depth:7} {statistics.median(a) / 1e9:6.2f} "
            f"{statistics.median(b) / 1e9:6.2f}  {statistics.median(a) / statistics.median(b):.3f} "
            f"({statistics.median(ratios):.3f}; {min(ratios):.3f}..{max(ratios):.3f})"
        )


if __name__ == "__main__":
    main()
