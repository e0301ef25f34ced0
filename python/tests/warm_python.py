"""Programs in processes of their own, without the seconds that each would take to import torch."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

# Forks a child for each line, which runs the program as `python -c` would: to the end of the
# interpreter. Nothing but imports may come before the fork, so that a child has what a new process
# has: one thread, and no model.
SERVER = """
import gc, json, os, sys
import torch, torch._dynamo, trash_panda, trash_panda._assemble

torch.set_num_threads(1)
gc.freeze()  # What was imported is no garbage: collecting in a child need not look at it.
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(request["stdout"], os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(os.open(request["stderr"], os.O_WRONLY | os.O_CREAT), 2)
        sys.argv = ["-c", *request["arguments"]]
        exec(compile(request["code"], "<program>", "exec"), {"__name__": "__main__"})
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class WarmPython:
    """Runs one program after another. The process that forks is started by the first one.

    :param folder: for what the programs print.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._server: subprocess.Popen[str] | None = None

    def run(
        self, code: str, *arguments: str | Path, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """The program's exit code (negative for a signal) and what it printed.

        Raises subprocess.TimeoutExpired when it has not ended after `timeout_s`.
        """
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-c", SERVER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        server = self._server
        assert server.stdin is not None
        assert server.stdout is not None
        self._count += 1
        printed = {name: self._folder / f"{self._count}.{name}" for name in ("stdout", "stderr")}
        request = {
            "code": code,
            "arguments": [str(argument) for argument in arguments],
            **{name: str(path) for name, path in printed.items()},
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], timeout_s)[0]:
            self.close()
            raise subprocess.TimeoutExpired("program", timeout_s)
        answer = server.stdout.readline()
        assert answer, "the process that forks programs has ended"
        texts = {name: path.read_text() for name, path in printed.items()}
        return subprocess.CompletedProcess(["-c"], int(answer), **texts)

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            os.killpg(server.pid, signal.SIGKILL)  # With a program that did not end.
            server.communicate()

    def __enter__(self) -> WarmPython:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
