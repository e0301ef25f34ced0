"""Inspects and plans a sparse checkpoint of every recorded architecture, at its real size.

usage: run_architectures.py PROGRAM ARCH_FOLDER [PATTERN]

Exit 0: blocks and bytes of all are the recorded ones, every tensor is in one place, and all are
planned; 1: not so, with what differs; 77: there are no recorded architectures here.
"""

import collections
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from program import Program
from run_cases import EXIT_SKIPPED

GROUP_KEYS = ("prefix", "count", "bytes_min", "bytes_max", "bytes_total")


def group_differences(document: dict, expected: dict) -> list[str]:
    """Where the groups and what is outside of them differ from what is recorded."""
    found = {group["prefix"]: [group[key] for key in GROUP_KEYS] for group in document["groups"]}
    wanted = {group["prefix"]: [group[key] for key in GROUP_KEYS] for group in expected["groups"]}
    differences = [
        f"group {prefix}: {found.get(prefix)}, expected {wanted.get(prefix)}"
        for prefix in sorted({*found, *wanted})
        if found.get(prefix) != wanted.get(prefix)
    ]
    for key, wanted_key in (
        ("tensor_count", "tensors"),
        ("total_bytes", "total"),
        ("outside_count", "other_tensors"),
        ("outside_bytes", "other_bytes"),
    ):
        if document[key] != expected[wanted_key]:
            differences.append(f"{key} {document[key]}, expected {expected[wanted_key]}")
    return differences


def place_differences(document: dict) -> list[str]:
    """Whether each tensor is listed once, and blocks are made of the tensors that say so."""
    names = collections.Counter(tensor["name"] for tensor in document["tensors"])
    differences = [f"{name} is listed {count} times" for name, count in names.items() if count > 1]
    if len(names) != document["tensor_count"]:
        differences.append(f"{len(names)} tensors are listed of {document['tensor_count']}")
    blocks: collections.Counter = collections.Counter()
    outside_bytes = 0
    for tensor in document["tensors"]:
        if tensor["block"]:
            blocks[tensor["block"]] += tensor["size_bytes"]
        else:
            outside_bytes += tensor["size_bytes"]
    for group in document["groups"]:
        prefix = group["prefix"]
        members = [size for name, size in blocks.items() if name[: name.rfind(".") + 1] == prefix]
        if (len(members), sum(members)) != (group["count"], group["bytes_total"]):
            differences.append(f"{prefix}: its tensors make {members}")
    if outside_bytes != document["outside_bytes"]:
        differences.append(f"tensors outside of blocks have {outside_bytes} bytes")
    return differences


def plan_differences(plan: dict, document: dict) -> list[str]:
    """Whether the tiers hold all blocks, each once."""
    tiers = sum(tier["raw_bytes"] for tier in plan["tiers"].values())
    wanted = document["total_bytes"] - document["outside_bytes"]
    return [f"the tiers hold {tiers} bytes, the blocks {wanted}"] if tiers != wanted else []


def check(program: Program, folder: pathlib.Path, name: str, expected: dict) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="trash-panda-arch-") as model:
        subprocess.run([sys.executable, folder / "make_sparse.py", name, model],
                       check=True, capture_output=True)  # fmt: skip
        inspected = program.run("inspect", model, "--tensors")
        if inspected.exit_code != 0:
            return [f"inspect: {inspected.err}"]
        planned = program.run("plan", model)
        if planned.exit_code != 0:
            return [f"plan: {planned.err}"]
    document = inspected.document
    return [
        *group_differences(document, expected),
        *place_differences(document),
        *plan_differences(planned.document, document),
    ]


def main() -> int:
    program = Program(pathlib.Path(sys.argv[1]))
    folder = pathlib.Path(sys.argv[2])
    pattern = sys.argv[3] if len(sys.argv) > 3 else "*"
    if not (folder / "expected_groups.json").exists():
        print(f"skipped: no recorded architectures in {folder}")
        return EXIT_SKIPPED
    recorded = json.loads((folder / "expected_groups.json").read_text(encoding="utf-8"))
    names = [name for name in recorded if fnmatch.fnmatch(name, pattern)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = pool.map(lambda name: check(program, folder, name, recorded[name]), names)
        for name, differences in zip(names, runs, strict=True):
            print(f"{name:<32}{'; '.join(differences[:5]) or 'as recorded, planned'}")
            failed += bool(differences)
    print(f"{len(names)} architectures, {failed} failed")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
