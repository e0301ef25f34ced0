"""TRASH_PANDA_PROFILE: where the time of a run went, on stderr when the run is over."""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

from . import _native
from ._program import run_for_text

_log = logging.getLogger("trash_panda")


class RunProfile:
    """Shows the summary of a run log once the run is over.

    :param log: where the run is logged; "": into a folder of its own, which goes in the end.
    """

    def __init__(self, log: Path | str) -> None:
        # It goes with this object, whatever happens to the run.
        self._folder = None if log else tempfile.TemporaryDirectory(prefix="trash-panda-")
        self.log = Path(log) if self._folder is None else Path(self._folder.name) / "run.jsonl"

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
        if self._folder is not None:
            self._folder.cleanup()
