"""The command line, which plans and packs: found beside this package and run for its JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from ._errors import TrashPandaError, make_error
from ._progress import Progress

_NAME = "trash-panda"
# The engine's error code for an exit status. 4 has two, which the report tells apart.
_CODES = {
    2: "usage",
    3: "missing",
    4: "corrupt",
    5: "does_not_fit",
    6: "mismatch",
    7: "output",
    8: "device",
    10: "stale",
    11: "locked",
}


def find_program() -> str:
    """Path of the command line: of this Python's environment, else on PATH.

    Raises TrashPandaError when there is none.
    """
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    for folder in folders:
        found = folder / _NAME
        if os.access(found, os.X_OK) and found.is_file():
            return str(found)
    on_path = shutil.which(_NAME)
    if on_path is None:
        raise TrashPandaError(
            f"the program {_NAME} is neither in {folders[0]} nor on PATH, and planning and packing "
            f"need it; install the wheel of this package: {sys.executable} -m pip install "
            "--force-reinstall dumpsterpanda"
        )
    return on_path


def run_program(arguments: Sequence[str | Path], progress: Progress | None = None) -> Any:
    """Runs a command with --json and returns its document.

    `progress` is called with (done, total) bytes. Ending this by Ctrl-C ends the program, which
    cleans up first. Raises the exception of the program's error.
    """
    command = [find_program(), "--json", "--progress", "json", *map(str, arguments)]
    error = None
    # A file takes a document of any size while the other pipe is read.
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
        subprocess.Popen(
            command, stdout=output, stderr=subprocess.PIPE, text=True, encoding="utf-8"
        ) as process,
    ):
        assert process.stderr is not None
        try:
            for line in _documents(process.stderr):
                if line.get("type") == "error":
                    error = line
                elif progress is not None and "done_bytes" in line:
                    progress(int(line["done_bytes"]), int(line.get("total_bytes") or 0))
        except BaseException:
            process.terminate()
            raise
        if process.wait() != 0:
            raise _error(process.returncode, error, command)
        output.seek(0)
        return json.load(output)


def run_for_text(arguments: Sequence[str | Path]) -> str:
    """Runs a command and returns what it prints. Raises the exception of the program's error."""
    command = [find_program(), "--quiet", "--color", "never", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        message = done.stderr.strip().removeprefix("error: ") or " ".join(command)
        raise make_error(_CODES.get(done.returncode, "failed"), message)
    return done.stdout


def _documents(stream: IO[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects among the lines; notes and warnings for people are left out."""
    for line in stream:
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            yield document


def _error(status: int, report: dict[str, Any] | None, command: Sequence[str]) -> TrashPandaError:
    if report is None:
        return TrashPandaError(f"{' '.join(command)} ended with status {status} and no message")
    code = "unsupported" if report["code"] == "unsupported" else _CODES.get(status, "failed")
    return make_error(
        code,
        report["message"],
        report.get("hint") or "",
        report["code"],
        report.get("needed_bytes"),
        report.get("budget_bytes"),
    )
