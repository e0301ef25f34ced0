"""Loads the next model of a pipeline while another one runs."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable

from . import _native
from ._assemble import Prepared
from ._errors import DoesNotFitError
from ._hooks import BlockStream
from ._offloaded import Offloaded

_log = logging.getLogger("trash_panda")
# Memory that is given back wakes the loader; this is for what others of the process give back.
_PATIENCE_S = 0.1


class LoadAhead:
    """One model on its way. The running one keeps a claim on what it has yet to read.

    :param least_bytes: what opening the model takes at once.
    :param running: whose claim that is.
    """

    def __init__(
        self,
        name: str,
        prepared: Prepared,
        group: _native.MemoryGroup,
        least_bytes: int,
        *,
        running: BlockStream | None,
    ) -> None:
        self.name = name
        self.freed = threading.Event()
        self.loading_s = 0.0
        self._prepared = prepared
        self._group = group
        self._least_bytes = least_bytes
        self._running = running
        self._offloaded: Offloaded | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(
            target=self._run, name=f"trash-panda loads {self.name}", daemon=True
        )
        self._thread.start()

    def finish(self) -> Offloaded:
        """The model as far as it came; what it lacks is read as it runs.

        Raises what opening it raised, DoesNotFitError among it.
        """
        self._stop()
        error, self._error = self._error, None
        if error is not None and self._offloaded is None:
            raise error
        return self._open() if self._offloaded is None else self._offloaded

    def abandon(self) -> None:
        """Lets go of what was loaded."""
        self._stop()
        if self._offloaded is not None:
            self._offloaded.remove()

    def _stop(self) -> None:
        self._ended.set()
        self.freed.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            if not self._when_there_is_room(self._least_bytes, self._open):
                return
            assert self._offloaded is not None
            stream = self._offloaded.stream
            for index, size in list(stream.not_read_yet.items()):
                if not self._when_there_is_room(size, functools.partial(stream.preload, index)):
                    return
        except Exception as error:
            # Once it is open, its first forward tells what is wrong; before, finish() does.
            self._error = error
            _log.info("%s was not loaded early: %s", self.name, error)

    def _open(self) -> Offloaded:
        offloaded = self._prepared.open(self._group)
        # On a GPU the whole RAM tier is taken at once.
        as_needed = self._prepared.place.gpu is None
        for block in self._prepared.match.blocks:
            if as_needed and self._prepared.tiers[block.index] != "disk":
                size = self._prepared.pack.blocks[block.index].stored_bytes
                offloaded.stream.not_read_yet[block.index] = size
        self._offloaded = offloaded
        return offloaded

    def _when_there_is_room(self, size: int, action: Callable[[], object]) -> bool:
        """Does it once the memory is free and not claimed. False: stopped before."""
        while not self._ended.is_set():
            self.freed.clear()
            claimed = 0 if self._running is None else self._running.claimed_bytes()
            if size + claimed <= self._group.limit_bytes - self._group.now_bytes:
                begin_s = time.perf_counter()
                try:
                    action()
                except DoesNotFitError:
                    _log.debug("%s: someone else of the process took that memory", self.name)
                else:
                    self.loading_s += time.perf_counter() - begin_s
                    return True
            self.freed.wait(_PATIENCE_S)
        return False
