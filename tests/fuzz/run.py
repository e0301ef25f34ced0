"""Runs fuzz targets on their seeds and on what earlier runs found: `run.py [TARGET…]`.

    run.py [--build build/fuzz] [--seconds 60] [--jobs N] [TARGET…]

Inputs that reach new code are kept in BUILD/corpus/TARGET, from run to run. Ends with a table; an
input that breaks a target is named with the commands that repeat it, and the exit code is 1.
Uses the standard library only.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

from make_seeds import MAKERS, make_seeds

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
# One input: a hundred times what the slowest one takes, as the machine may be busy.
SECONDS_PER_INPUT_MAX = 60
# One allocation, and the whole process with what the sanitizers add. How much an input may make a
# parser hold is the targets' own check.
ALLOCATION_MB_MAX = 64
PROCESS_MB_MAX = 2048


@dataclasses.dataclass
class Outcome:
    target: str
    seconds: int = 0
    executions: int = 0
    edges: int = 0
    inputs: int = 0
    finding: str = ""  # What went wrong, in a word or two; empty when nothing did.
    file: str = ""


def environment(build: pathlib.Path) -> dict[str, str]:
    settings = dict(os.environ)
    # Targets that need files write them here, and leave them when they fail.
    settings["TMPDIR"] = str(build / "temporary")
    symbolizer = shutil.which("llvm-symbolizer-19")
    if symbolizer:
        settings["ASAN_SYMBOLIZER_PATH"] = symbolizer
    # Less memory that waits to be used again: uses after free are found at once or not at all.
    settings["ASAN_OPTIONS"] = "quarantine_size_mb=16:" + settings.get("ASAN_OPTIONS", "")
    return settings


def last_number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def read_outcome(target: str, exit_code: int, log: str) -> Outcome:
    outcome = Outcome(target)
    outcome.executions = last_number(r"stat::number_of_executed_units: +(\d+)", log)
    outcome.seconds = last_number(r"Done \d+ runs in (\d+) second", log)
    outcome.edges = last_number(r"\bcov: (\d+)", log)
    outcome.inputs = last_number(r"\bcorp: (\d+)/", log)
    if exit_code:
        artifact = re.search(r"Test unit written to (\S.*)", log)
        outcome.file = artifact[1] if artifact else ""
        reason = re.search(r"(?:internal error|ERROR|SUMMARY): (.*)", log)
        outcome.finding = reason[1] if reason else "it did not run"
    return outcome


def fuzz(target: str, build: pathlib.Path, seconds: int) -> Outcome:
    corpus, seeds, findings = (build / name / target for name in ("corpus", "seeds", "findings"))
    make_seeds(target, seeds)
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    inputs = [corpus, seeds, HERE / "regressions" / target]
    command = [
        str(build / "tests/fuzz" / f"fuzz_{target}"),
        f"-max_total_time={seconds}",
        f"-timeout={SECONDS_PER_INPUT_MAX}",
        f"-malloc_limit_mb={ALLOCATION_MB_MAX}",
        f"-rss_limit_mb={PROCESS_MB_MAX}",
        f"-dict={HERE / 'dictionaries' / target}.dict",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        *(str(folder) for folder in inputs if folder.is_dir()),
    ]
    log = build / "logs" / f"{target}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as output:
        done = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment(build), check=False
        )
    return read_outcome(target, done.returncode, log.read_text(errors="replace"))


def show(outcomes: list[Outcome], build: pathlib.Path) -> None:
    print("target               seconds  executions  edges  inputs  finding")
    for one in outcomes:
        print(
            f"{one.target:20} {one.seconds:7} {one.executions:11} {one.edges:6} {one.inputs:7}"
            f"  {one.finding or 'none'}"
        )
    for one in outcomes:
        if one.finding:
            print(f"{one.target}: whole log: {build / 'logs' / one.target}.log")
        if one.file:
            print(f"  to repeat: {build / 'tests/fuzz' / f'fuzz_{one.target}'} {one.file}")
            print(f"  once mended: copy it to tests/fuzz/regressions/{one.target}/, with a name")
    broken = sum(1 for one in outcomes if one.finding)
    executions = sum(one.executions for one in outcomes)
    print(f"fuzz: {len(outcomes)} targets, {executions} executions, {broken} with a finding")


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs fuzz targets.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at a time")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(sorted(MAKERS)))
    options = parser.parse_args()
    targets = options.targets or sorted(MAKERS)
    unknown = set(targets) - set(MAKERS)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(MAKERS)}")
    build = options.build.resolve()
    missing = [name for name in targets if not (build / f"tests/fuzz/fuzz_{name}").exists()]
    if missing:
        print(f"not built in {build}: {', '.join(missing)}; see: ./bootstrap fuzz", file=sys.stderr)
        return 1
    shutil.rmtree(build / "temporary", ignore_errors=True)
    (build / "temporary").mkdir()
    with concurrent.futures.ThreadPoolExecutor(max(1, options.jobs)) as pool:
        outcomes = list(pool.map(lambda name: fuzz(name, build, options.seconds), targets))
    show(outcomes, build)
    return 1 if any(one.finding for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
