#!/usr/bin/env python3
"""How long commands that write or read much go on after Ctrl-C.

    python bench/interrupt.py --dir FOLDER [--gb 2] [--program PATH] [--rounds 10]

Sends SIGINT and SIGTERM in turn at random moments of `repack`, `verify` and `unpack`, and prints
how long each took to end: 2 s are promised. A repack has to say how to take on with it once a block
is finished, and is taken on with in the next round.
"""

import argparse
import pathlib
import random
import shutil
import signal
import subprocess
import time

from repack_speed import write_checkpoint


def interrupt(command: list[str], delay_s: float, number: int) -> tuple[float, int, str]:
    """Seconds from the signal to the end, the exit code, and what was said."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(delay_s)
    child.send_signal(number)
    start_s = time.perf_counter()
    _, said = child.communicate()
    return time.perf_counter() - start_s, child.returncode, said


def timed(command: list[str]) -> float:
    start_s = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start_s


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=2)
    parser.add_argument("--program", default="trash-panda")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    folder = arguments.dir / "interrupt"
    folder.mkdir()
    try:
        model, pack = str(folder / "model.safetensors"), str(folder / "pack")
        partial, unpacked = folder / "other.partial", str(folder / "unpacked")
        write_checkpoint(pathlib.Path(model), int(arguments.gb * 10**9))
        common = ["--reserve", "0", "-q"]
        whole_s = timed([arguments.program, "repack", model, "-o", pack, *common])
        commands = {
            "repack": ["repack", model, "-o", str(folder / "other"), *common],
            "verify": ["verify", pack, "-q"],
            "unpack": ["unpack", pack, "-o", unpacked, *common],
        }
        for name, words in commands.items():
            ends: list[float] = []
            for i in range(arguments.rounds):
                number = (signal.SIGINT, signal.SIGTERM)[i % 2]
                delay_s = random.uniform(0.05, whole_s * 0.6)
                end_s, code, said = interrupt([arguments.program, *words], delay_s, number)
                if code == 0:
                    shutil.rmtree(folder / "other", ignore_errors=True)
                    shutil.rmtree(unpacked, ignore_errors=True)
                    continue  # It was done by then.
                if code not in (128 + number, -number):  # The latter before it had begun.
                    raise SystemExit(f"{name} ended with {code} by {number.name}: {said}")
                if name == "repack" and partial.exists() != ("take on with: " in said):
                    raise SystemExit(f"{name} left something without a word: {said}")
                ends.append(end_s)
            print(
                f"{name}: {len(ends)} of {arguments.rounds} interrupted, ended after "
                f"{max(ends, default=0):.2f} s at most"
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
