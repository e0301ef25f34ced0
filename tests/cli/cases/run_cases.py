"""Runs every shared case through the command line and prints what came of each kind.

usage: run_cases.py PROGRAM CASES_FOLDER [PATTERN]

Exit 0: all cases end as they may; 1: some do not, which are named; 77: there are no cases here.
"""

import collections
import concurrent.futures
import fnmatch
import os
import pathlib
import sys
import tempfile

from case import Case, read_cases
from judge import Ending, Verdict, judge
from program import Program

EXIT_SKIPPED = 77


def run_case(case: Case, program: Program) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="trash-panda-case-") as folder:
        work = pathlib.Path(folder) / "work"
        work.mkdir()
        return judge(case, program, work)


def print_table(verdicts: dict[str, list[Verdict]]) -> None:
    endings = list(Ending)
    print(f"{'kind':<18}{'cases':>6}" + "".join(f"{ending.value:>17}" for ending in endings))
    total: collections.Counter = collections.Counter()
    for group in sorted(verdicts):
        counts = collections.Counter(verdict.ending for verdict in verdicts[group])
        total += counts
        print_row(group, [counts[ending] for ending in endings])
    print_row("all", [total[ending] for ending in endings])


def print_row(title: str, counts: list[int]) -> None:
    print(f"{title:<18}{sum(counts):>6}" + "".join(f"{count or '-':>17}" for count in counts))


def main() -> int:
    program = Program(pathlib.Path(sys.argv[1]))
    folder = pathlib.Path(sys.argv[2])
    pattern = sys.argv[3] if len(sys.argv) > 3 else "*"
    if not (folder / "manifest.json").exists():
        print(f"skipped: no shared cases in {folder}")
        return EXIT_SKIPPED
    cases = [case for case in read_cases(folder) if fnmatch.fnmatch(case.id, pattern)]
    verdicts = collections.defaultdict(list)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = pool.map(lambda case: run_case(case, program), cases)
        for case, verdict in zip(cases, runs, strict=True):
            verdicts[case.group].append(verdict)
            if verdict.ending is Ending.FAILED:
                failed += 1
                print(f"FAILED {case.id}: {verdict.why}")
    print_table(verdicts)
    print(f"{len(cases)} cases, {failed} failed")
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
