"""Holds the whole tree to the rules: `python3 tests/tidy/tree.py [ROOT]`, exit 1 on a finding."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

from include_rules import check_includes, layers
from source_text import SourceFile
from text_rules import TEXT_RULES
from unity_rules import check_private_names

# Bytes that belong to a format, kept as they are; and texts that are not ours.
_NOT_OURS = ("LICENSE",)
_DATA_FOLDERS = ("golden", "golden_bad", "data", "regressions", "seeds")
_OUTPUTS = (".git", ".venv", ".cache", "build", "__pycache__")


def _listed_by_git(root: pathlib.Path) -> list[str] | None:
    # Another owner's clone (sudo, a container) is fine to read.
    command = ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z", "--cached",
               "--others", "--exclude-standard"]  # fmt: skip
    try:
        listed = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return sorted(name for name in os.fsdecode(listed).split("\0") if name)


def _listed_by_walking(root: pathlib.Path) -> list[str]:
    names = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in _OUTPUTS]
        names += [os.path.relpath(os.path.join(folder, file), root) for file in files]
    return sorted(names)


def source_files(root: pathlib.Path) -> Iterator[SourceFile]:
    for name in _listed_by_git(root) or _listed_by_walking(root):
        path = root / name
        if name in _NOT_OURS or not path.is_file() or path.is_symlink():
            continue
        if set(pathlib.PurePosixPath(name).parts[:-1]) & set(_DATA_FOLDERS):
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            yield SourceFile(name, data.decode("utf-8", errors="replace"))


def findings(root: pathlib.Path) -> Iterator[str]:
    order = layers((root / "docs/ARCHITECTURE.md").read_text(encoding="utf-8"))
    files = list(source_files(root))
    yield from check_private_names(file for file in files if file.path.endswith(".cpp"))
    for file in files:
        for line, message in check_includes(file, order):
            yield f"{file.path}:{line}: {message}"
        for rule in TEXT_RULES:
            for line, message in rule(file):
                yield f"{file.path}:{line}: {message}"


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    found = list(findings(root))
    for line in found:
        print(line)
    count = sum(1 for _ in source_files(root))
    if count < 20:
        print(f"only {count} files under {root}: is this the root of the project?")
        return 1
    print(f"tidy: {count} files, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
