"""Settings from the environment. A bad value is an error that names its variable.

What planning depends on (TRASH_PANDA_MAX_RAM and the like) is read by the command line.
"""

from __future__ import annotations

import os

_PREFIX = "TRASH_PANDA_"


_FLAGS = ("", "0", "1", "false", "true", "no", "yes")


def check_environment() -> None:
    """Raises ValueError for a bad value of a variable that the earlier library had.

    They have no effect so far: nothing is pinned or copied to a GPU by this package, and counters
    count always.
    """
    count_from_environment("PINNED_BUFFERS", least=1)
    count_from_environment("BLOCKS_IN_FLIGHT", least=1)
    text = os.environ.get(_PREFIX + "PROFILE", "").strip()
    if text.lower() not in _FLAGS:
        raise ValueError(f"{_PREFIX}PROFILE is {text!r}, not one of 0, 1, false, true, no, yes")


def count_from_environment(name: str, least: int = 0) -> int | None:
    """The whole number in TRASH_PANDA_<name>; None when it is not set or empty.

    Raises ValueError naming the variable when it is no number or less than `least`.
    """
    text = os.environ.get(_PREFIX + name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise ValueError(f"{_PREFIX}{name} is {text!r}, not a whole number of at least {least}")
    return int(text)


def flag_from_environment(name: str) -> bool:
    """Whether TRASH_PANDA_<name> says yes, by the words that the command line knows.

    Raises ValueError naming the variable when it is none of them.
    """
    text = os.environ.get(_PREFIX + name, "").strip().lower()
    if text in ("", "0", "no", "false", "off"):
        return False
    if text in ("1", "yes", "true", "on"):
        return True
    raise ValueError(f"{_PREFIX}{name} is {text!r}, not 1 or 0 (yes, no, true, false, on, off)")
