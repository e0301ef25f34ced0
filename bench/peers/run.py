#!/usr/bin/env python3
"""Runs our streaming and the other tools of the field on the same model, and prints ratios.

    sudo .venv/bin/python bench/peers/run.py --dir FOLDER [--peers accelerate,diffusers]

All blocks are on disk and the CPU computes: a Llama of --blocks blocks (30: 4.0 GB of bf16), 8
tokens. In each round every peer gets a process of its own, and just before it the checkpoint is
read directly, at the setting that suits the drive best: figures are ratios to that read, and to
ours in the same round. Peers that refuse to run without a GPU are not among them.

A process drops the page cache, loads, and runs the first pass at once; it drops the page cache
again before each later pass. Whoever reads ahead goes on while the cache is dropped: a pass is
charged for what was read since the one before, at its own rate.

Needs root, to drop the page cache, and pip, which installs each peer into FOLDER as
bench/peers/requirements pins it; torch, transformers and safetensors are those of .venv. Peers that
need a copy of the weights write it once, before the rounds: with the model about 8 times its
size. Everything stays in FOLDER for the next time. A whole run takes half an hour or more, most of
it bigsmall, which also takes as long to write its copy. Not part of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from direct_read import best_setting, read_seconds
from peers import OURS, PEERS
from report import Outcome, print_report

HERE = Path(__file__).parent
SAMPLE_S = 0.01
# Of the model's size, for each copy that is made of it. bigsmall's is written three times over.
COPY_SIZES = {
    "pack": 1, "coded": 0.7, "diffusers": 1, "neurostream": 1, "airllm": 1, "bigsmall": 0.7 * 3
}  # fmt: skip


class PeerFailed(Exception):
    """A peer could not be installed or did not run; the message is the reason."""


def last_line(text: str) -> str:
    """Where programs say what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def install(peer: str, site: Path) -> None:
    """Installs what requirements/<peer>.txt pins, unless just that is there."""
    requirements = HERE / "requirements" / f"{peer}.txt"
    stamp = site / "installed.txt"
    if stamp.is_file() and stamp.read_text() == requirements.read_text():
        return
    shutil.rmtree(site, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site,
         "--requirement", requirements],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise PeerFailed(f"not installed: {last_line(done.stderr)}")
    stamp.write_text(requirements.read_text())


def anonymous_bytes(pid: int) -> int:
    """What a process has taken for itself: no mapped files, but memory from the huge page pool."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    fields = dict(line.split(":", 1) for line in status.splitlines())
    kept = ("RssAnon", "RssShmem", "HugetlbPages")
    return sum(int(fields[name].split()[0]) * 1024 for name in kept if name in fields)


class Bench:
    """The folder with the model, the installed peers and their copies of the weights."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.blocks, self.passes = arguments.blocks, arguments.passes
        self.threads = arguments.threads
        folder: Path = arguments.dir
        self.site = folder / "site"
        self.root = folder / f"{self.blocks}-blocks"
        self.model = self.root / "model"
        self.checkpoint = self.model / "model.safetensors"

    def make_model(self) -> None:
        if not self.checkpoint.is_file():
            program = [sys.executable, str(HERE / "model.py"), str(self.model)]
            subprocess.run([*program, "--blocks", str(self.blocks)], check=True)

    def copy(self, peer: str) -> Path:
        return self.root / peer

    def _command(self, peer: str, step: str) -> list[str | Path]:
        return [
            sys.executable, HERE / "driver.py", peer, step, "--model", self.model,
            "--copy", self.copy(peer), "--logits", self.logits(peer),
            "--passes", str(self.passes), "--threads", str(self.threads),
        ]  # fmt: skip

    def logits(self, peer: str) -> Path:
        return self.root / f"{peer}.logits.safetensors"

    def _environment(self, peer: str) -> dict[str, str]:
        threads = str(self.threads)
        return os.environ | {
            "PYTHONPATH": str(self.site / peer),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": threads,
            "NUMBA_NUM_THREADS": threads,
            "HF_HUB_OFFLINE": "1",
            "TQDM_DISABLE": "1",
            "BIGSMALL_DISABLE_VERSION_CHECK": "1",
        }

    def prepare(self, peer: str) -> float:
        """Installs a peer and writes its copy; returns the seconds that the copy took."""
        if peer in PEERS:
            install(peer, self.site / peer)
        stamp = self.root / f"{peer}.prepared.json"
        if stamp.is_file():
            return float(json.loads(stamp.read_text()))
        shutil.rmtree(self.copy(peer), ignore_errors=True)
        self.copy(peer).mkdir(parents=True)
        if (OURS | PEERS)[peer].prepare is None:
            return 0
        start_s = time.perf_counter()
        done = subprocess.run(
            self._command(peer, "prepare"), env=self._environment(peer),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise PeerFailed(f"no copy: {last_line(done.stderr)}")
        os.sync()  # Pages that are still to be written are not dropped.
        elapsed_s = time.perf_counter() - start_s
        stamp.write_text(json.dumps(elapsed_s))
        return elapsed_s

    def measure(self, peer: str) -> dict[str, Any]:
        """One process of a peer: the line that it prints, and its peak memory."""
        peak_bytes = 0
        output, errors = self.root / "output.txt", self.root / "errors.txt"
        with output.open("wb") as stdout, errors.open("wb") as stderr:
            child = subprocess.Popen(
                self._command(peer, "measure"), env=self._environment(peer),
                stdout=stdout, stderr=stderr,
            )  # fmt: skip
            while child.poll() is None:
                peak_bytes = max(peak_bytes, anonymous_bytes(child.pid))
                time.sleep(SAMPLE_S)
        if child.returncode != 0:
            raise PeerFailed(last_line(errors.read_text(errors="replace")))
        line: dict[str, Any] = json.loads(last_line(output.read_text()))
        return line | {"peak_anonymous_bytes": peak_bytes}


def check_space(bench: Bench, names: list[str], folder: Path) -> None:
    """Before anything is written; what is there already is not counted again."""
    from model import BLOCK_BYTES

    model_bytes = bench.blocks * BLOCK_BYTES
    missing = 0.0 if bench.checkpoint.is_file() else 1.0
    missing += sum(
        size for name, size in COPY_SIZES.items()
        if name in names and not bench.copy(name).is_dir()
    )  # fmt: skip
    free_bytes = shutil.disk_usage(folder).free
    if missing * model_bytes > free_bytes:
        raise SystemExit(
            f"{folder} has {free_bytes / 1e9:.1f} GB free, and {missing * model_bytes / 1e9:.1f} "
            "are needed: name fewer --peers or --blocks"
        )


def run_rounds(bench: Bench, outcomes: dict[str, Outcome], rounds: int) -> None:
    setting = best_setting(bench.checkpoint)
    print(f"direct read: {setting[0] // 2**20} MiB x {setting[1]}", file=sys.stderr)
    for number in range(rounds):
        for peer, outcome in outcomes.items():
            if outcome.reason:
                continue
            print(f"round {number + 1} of {rounds}: {peer}", file=sys.stderr)
            read_s = read_seconds(bench.checkpoint, setting)
            try:
                outcome.rounds.append(bench.measure(peer) | {"direct_read_s": read_s})
            except PeerFailed as failure:
                outcome.reason = str(failure)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=3, help="in each round")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"default: {','.join(PEERS)}")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="also write all lines to this file")
    arguments = parser.parse_args()
    arguments.peers = [name for name in arguments.peers.split(",") if name]
    for name in arguments.peers:
        if name not in PEERS:
            parser.error(f"no peer is called {name}; there are {', '.join(PEERS)}")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if not os.access("/proc/sys/vm/drop_caches", os.W_OK):
        raise SystemExit("needs root, to drop the page cache before each pass")
    arguments.dir = arguments.dir.resolve()
    arguments.dir.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments)
    names = [*OURS, *arguments.peers]
    check_space(bench, names, arguments.dir)
    bench.make_model()
    outcomes = {name: Outcome() for name in names}
    for name, outcome in outcomes.items():
        print(f"preparing {name}", file=sys.stderr)
        try:
            outcome.prepare_s = bench.prepare(name)
        except PeerFailed as failure:
            outcome.reason = str(failure)
    run_rounds(bench, outcomes, arguments.rounds)
    if arguments.json:
        facts = {name: vars(outcome) for name, outcome in outcomes.items()}
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")
    print_report(outcomes, bench)


if __name__ == "__main__":
    main()
