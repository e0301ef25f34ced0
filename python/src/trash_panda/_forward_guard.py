"""One forward at a time."""

from __future__ import annotations

import threading

from ._errors import TrashPandaError


class ForwardGuard:
    """Lets one thread at a time run the model, and that one as deep as it likes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: threading.Thread | None = None
        self._depth = 0

    def enter(self, *, outermost: bool = False) -> None:
        """Raises TrashPandaError when another thread is in a forward.

        `outermost` says that nothing of this thread can still be running: what an interrupt
        (KeyboardInterrupt skips hooks) left entered is forgotten.
        """
        me = threading.current_thread()
        if self._owner is me and not outermost:
            self._depth += 1  # Only the owner changes anything: no lock, for each block's sake.
            return
        with self._lock:
            if self._owner is not None and self._owner is not me and self._owner.is_alive():
                raise TrashPandaError(
                    f"this model's forward is running in thread {self._owner.name}; its weights "
                    "stream through memory that two forwards can't share: use one model a thread, "
                    "or a lock (after an interrupted forward, run that thread's model once more)"
                )
            if self._owner is not me or outermost:
                self._owner, self._depth = me, 0
            self._depth += 1

    def leave(self) -> bool:
        """Undoes one enter(). False when this thread has not entered."""
        if self._owner is not threading.current_thread() or self._depth == 0:
            return False
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
        return True

    def owns(self) -> bool:
        return self._owner is threading.current_thread()
