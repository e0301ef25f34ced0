"""Runs the command line as a user does, and reads what it says."""

import dataclasses
import json
import os
import pathlib
import subprocess

# Of what is asked of one case; a program that hangs is a failure, not a pause.
SECONDS_MAX = 120


@dataclasses.dataclass(frozen=True)
class Run:
    exit_code: int
    out: str
    err: str

    @property
    def document(self) -> dict:
        """What a command with --json says: one object, on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> dict:
        """Why it failed: one object, the last line of stderr."""
        return json.loads(self.err.splitlines()[-1])


@dataclasses.dataclass(frozen=True)
class Program:
    path: pathlib.Path

    def run(self, command: str, *arguments: str | os.PathLike) -> Run:
        # Settings of whoever runs the tests are not part of the case.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("TRASH_PANDA_")
        }
        done = subprocess.run(
            [self.path, "--json", command, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        return Run(
            done.returncode,
            done.stdout.decode("utf-8", errors="replace"),
            done.stderr.decode("utf-8", errors="replace"),
        )
