"""What undoes an installation."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class OffloadHandle:
    """Of an installation; remove() undoes it."""

    def __init__(self, undo: Iterable[Callable[[], None]] = ()) -> None:
        self._undo = list(undo)

    def extend(self, other: OffloadHandle) -> None:
        """Takes over what the other one would undo."""
        if other is not self:
            self._undo += other._undo
            other._undo = []

    def remove(self) -> None:
        """Takes the hooks off and releases the weights. A second call does nothing."""
        while self._undo:
            self._undo.pop()()
