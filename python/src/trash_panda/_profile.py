"""TRASH_PANDA_PROFILE: where the time of a run went, on stderr when the run is over."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path

from . import _native
from ._program import run_for_text

_log = logging.getLogger("trash_panda")


class RunProfile:
    """Shows the summary of a run log once the run is over.

    :param log: where the run is logged; "": into a folder of its own, which goes in the end.
    """

    def __init__(self, log: Path | str) -> None:
        self._remove = None
        if not log:
            folder = tempfile.mkdtemp(prefix="trash-panda-")
            # It goes with this object, whatever happens to the run.
            self._remove = weakref.finalize(self, _remove_own, folder, os.getpid())
            log = Path(folder) / "run.jsonl"
        self.log = Path(log)

    def finish(self, streamer: _native.Streamer) -> None:
        """Ends the log and shows it. Whatever fails is a warning: the run itself went well."""
        if streamer.forked:
            return
        streamer.end_log()
        try:
            text = run_for_text(["report", self.log])
            print(text, end="", file=sys.stderr, flush=True)
        except Exception as error:  # Also at the end of the program, where nobody could catch it.
            _log.warning("no profile of this run: %s", error)
        if self._remove is not None:
            self._remove()


def _remove_own(folder: str, owner: int) -> None:
    """A forked child, whose copy of the object ends too, leaves its parent the folder."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
