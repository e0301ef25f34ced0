"""Checks our C++ with clang-format and clang-tidy; `--fix` formats instead.

    scripts/lint.py [--build build/dev]… [--jobs N] [--format-only] [--fix] [FILE…]

clang-tidy sees the translation units of the build trees: single files of build/dev, or the
joined ones of a preset with CMAKE_UNITY_BUILD, which is several times faster. What it passed is
not checked again until a source, a header, the command, .clang-tidy or the tool changes: what a
unit depends on is asked of ninja. Uses the standard library only.

Exit 0: clean; 1: findings, or a tool or a build tree is missing.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FORMATTED = (".h", ".cpp", ".cu", ".cuh")


def find_tool(name: str) -> str:
    """The pinned tool of .venv or beside this Python, else Debian's of the same major version."""
    beside = pathlib.Path(sys.executable).with_name(name)
    for candidate in (ROOT / ".venv/bin" / name, beside, f"{name}-19"):
        found = shutil.which(candidate)
        if found:
            return found
    sys.exit(f"lint: no {name} 19 here; ./bootstrap deps installs it into .venv")


def our_files() -> list[str]:
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others",
               "--exclude-standard"]  # fmt: skip
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
        names = os.fsdecode(listed).split("\0")
    except (OSError, subprocess.SubprocessError):
        names = [
            str(path.relative_to(ROOT))
            for path in ROOT.rglob("*")
            if not {".venv", "build"} & set(path.relative_to(ROOT).parts)
        ]
    return sorted(name for name in names if name.endswith(FORMATTED) and (ROOT / name).is_file())


def run_format(files: list[str], fix: bool) -> bool:
    options = ["-i"] if fix else ["--dry-run", "-Werror", "--ferror-limit=3"]
    done = subprocess.run([find_tool("clang-format"), *options, *files], cwd=ROOT, check=False)
    return done.returncode == 0


@functools.cache
def file_state(path: str) -> str:
    """Our files count by content, so that a fresh clone is the same; the system's by stat."""
    try:
        if path.startswith(f"{ROOT}/"):
            return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
        status = os.stat(path)
    except OSError:
        return "missing"
    return f"{status.st_size} {status.st_mtime_ns}"


def read_dependencies(build: pathlib.Path) -> dict[str, list[str]]:
    """What each object file was made from, as ninja recorded it: object → absolute paths."""
    listed = subprocess.run(
        ["ninja", "-C", str(build), "-t", "deps"], capture_output=True, text=True, check=False
    ).stdout
    dependencies: dict[str, list[str]] = {}
    current: list[str] = []
    for line in listed.splitlines():
        if line.startswith("    "):
            current.append(os.path.normpath(build / line.strip()))
        elif "#deps" in line:
            current = dependencies.setdefault(line.split(":", 1)[0], [])
    return dependencies


class Tidy:
    def __init__(self, build: pathlib.Path):
        self.build = build
        self.config = ROOT / ".clang-tidy"
        self.tool = find_tool("clang-tidy")
        self.passed = build / "lint"
        self.passed.mkdir(exist_ok=True)
        version = subprocess.run([self.tool, "--version"], capture_output=True, check=True).stdout
        self.base = version + self.config.read_bytes()
        self.dependencies = read_dependencies(build)

    def state(self, entry: dict) -> str | None:
        """A hash of all that the result depends on; None when ninja has not built it yet."""
        dependencies = self.dependencies.get(entry.get("output", ""))
        if not dependencies:
            return None
        digest = hashlib.sha256(self.base + entry["command"].encode())
        for path in [entry["file"], *dependencies]:
            digest.update(f"{path} {file_state(path)}\n".encode())
        return digest.hexdigest()

    def check(self, entry: dict) -> tuple[str, str | None]:
        """Returns the file and the findings; no findings, "" when checked, None when known."""
        name = os.path.relpath(entry["file"], ROOT)
        state = self.state(entry)
        stamp = self.passed / hashlib.sha256(name.encode()).hexdigest()[:24]
        if state and stamp.exists() and stamp.read_text() == state:
            return name, None
        done = subprocess.run(
            [self.tool, "-p", str(self.build), "--quiet", f"--config-file={self.config}",
             entry["file"]],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            if state:
                stamp.write_text(state)
            return name, ""
        return name, done.stdout or done.stderr


def joined_sources(unit: str) -> list[str]:
    """The sources that a file of CMAKE_UNITY_BUILD includes; none for any other file."""
    if "/Unity/unity_" not in unit:
        return []
    text = pathlib.Path(unit).read_text()
    return re.findall(r'^#include "(.+)"$', text, re.MULTILINE)


def is_ours(source: str) -> bool:
    name = os.path.relpath(source, ROOT)
    return name.endswith(".cpp") and not name.startswith(("..", "build/", ".venv/"))


def our_units(build: pathlib.Path, only: list[str]) -> dict[tuple[str, ...], dict]:
    """Entries of the compile commands that hold sources of ours, by those sources."""
    commands = build / "compile_commands.json"
    if not commands.exists():
        sys.exit(f"lint: {commands} is missing; run: cmake --preset {build.name}")
    units = {}
    for entry in json.loads(commands.read_text()):
        sources = joined_sources(entry["file"]) or [entry["file"]]
        ours = [os.path.relpath(source, ROOT) for source in sources if is_ours(source)]
        if ours and (not only or set(ours) & set(only)):
            units[tuple(ours)] = entry
    return units


def run_tidy(builds: list[pathlib.Path], jobs: int, only: list[str]) -> bool:
    seen: set[tuple[str, ...]] = set()
    known = failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for build in builds:
            units = our_units(build, only)
            new = [entry for sources, entry in units.items() if sources not in seen]
            seen.update(units)
            tidy = Tidy(build)
            for name, findings in pool.map(tidy.check, new):
                known += findings is None
                if findings:
                    failed += 1
                    print(f"== {name}\n{findings}", flush=True)
    print(f"lint: clang-tidy: {len(seen)} units, {known} unchanged, {failed} with findings")
    return failed == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help="default: all of ours")
    parser.add_argument("--build", type=pathlib.Path, action="append", metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--format-only", action="store_true", help="no clang-tidy")
    parser.add_argument("--fix", action="store_true", help="format the files; no clang-tidy")
    options = parser.parse_args()
    only = [os.path.relpath(os.path.abspath(name), ROOT) for name in options.files]
    files = [name for name in our_files() if not only or name in only]
    formatted = run_format(files, options.fix)
    print(f"lint: clang-format: {len(files)} files, {'clean' if formatted else 'with findings'}")
    if options.fix or options.format_only:
        return 0 if formatted else 1
    builds = [build.resolve() for build in options.build or [ROOT / "build/dev"]]
    return 0 if run_tidy(builds, options.jobs, only) and formatted else 1


if __name__ == "__main__":
    sys.exit(main())
