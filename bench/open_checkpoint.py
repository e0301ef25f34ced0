#!/usr/bin/env python3
"""What it costs to open a checkpoint, beside the `safetensors` package reading the same headers.

    .venv/bin/python bench/open_checkpoint.py FOLDER [--program PATH] [--rounds N] [--json]

Whole processes, warm, in turn, so that noise of the machine meets all alike: CPU seconds (user and
system) and peak memory as the kernel counts them. Each reader lists the name, dtype and shape of
every tensor; `trash-panda` pairs weights with scales and finds the blocks as well. The Python
figures are given as a user pays for them, and again without the interpreter's start and imports.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

LIST_TENSORS = """
import glob, resource, sys
from safetensors import safe_open
{extra_import}
def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
start_s = cpu_s()
tensors = {{}}
for path in sorted(glob.glob(sys.argv[1] + "/*.safetensors")):
    with safe_open(path, framework={framework!r}) as reader:
        for name in reader.keys():
            part = reader.get_slice(name)
            tensors[name] = (part.get_dtype(), part.get_shape())
print(len(tensors), cpu_s() - start_s)
"""


def run(command: list[str]) -> tuple[float, int, str]:
    """Runs a command; returns CPU seconds, peak resident bytes and what it printed."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        text = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, text


def measure(arguments: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """CPU seconds, peak bytes and, for Python, CPU seconds of the listing alone, by reader."""
    folder = str(arguments.folder)
    readers = {
        "trash-panda": [str(arguments.program), "inspect", folder, "--json"],
        "safetensors (numpy)": ["numpy", "import numpy"],
        "safetensors (torch)": ["pt", "import torch"],
    }
    figures: dict[str, dict[str, list[float]]] = {
        name: {"cpu_s": [], "peak_bytes": [], "listing_cpu_s": []} for name in readers
    }
    counts: dict[str, int] = {}
    for _ in range(arguments.rounds + 1):  # The first round warms up and is dropped.
        for name, reader in readers.items():
            command = reader
            if name != "trash-panda":
                framework, extra_import = reader
                code = LIST_TENSORS.format(framework=framework, extra_import=extra_import)
                command = [sys.executable, "-c", code, folder]
            cpu_s, peak_bytes, text = run(command)
            if name == "trash-panda":
                counts[name] = json.loads(text)["tensor_count"]
                listing_cpu_s = cpu_s
            else:
                counts[name], listing_cpu_s = int(text.split()[0]), float(text.split()[1])
            figures[name]["cpu_s"].append(cpu_s)
            figures[name]["peak_bytes"].append(peak_bytes)
            figures[name]["listing_cpu_s"].append(listing_cpu_s)
    if len(set(counts.values())) != 1:
        raise SystemExit(f"the readers disagree on the number of tensors: {counts}")
    return {
        name: {key: values[1:] for key, values in by_key.items()}
        for name, by_key in figures.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--program", type=Path, default=Path(".venv/bin/trash-panda"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments)
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    own_cpu_s = statistics.median(figures["trash-panda"]["cpu_s"])
    print(f"{'':22}{'CPU s (min..max)':>26}{'ratio':>8}{'listing alone':>16}{'peak MB':>9}")
    for name, values in figures.items():
        cpu_s = statistics.median(values["cpu_s"])
        spread = f"{cpu_s:.3f} ({min(values['cpu_s']):.3f}..{max(values['cpu_s']):.3f})"
        listing = f"{statistics.median(values['listing_cpu_s']):.3f}"
        peak = f"{max(values['peak_bytes']) / 1e6:.0f}"
        print(f"{name:22}{spread:>26}{cpu_s / own_cpu_s:>8.1f}{listing:>16}{peak:>9}")


if __name__ == "__main__":
    main()
