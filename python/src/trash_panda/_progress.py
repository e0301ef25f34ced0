"""Progress on stderr."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

Progress = Callable[[int, int], None]


@contextlib.contextmanager
def progress_callback(wanted: bool | Progress | None, title: str) -> Iterator[Progress | None]:
    """The function to report (done, total) bytes to, or None.

    A bar appears only on a terminal, with tqdm installed, and unless TQDM_DISABLE or
    HF_HUB_DISABLE_PROGRESS_BARS is set; `wanted` True shows it without a terminal too.
    """
    if callable(wanted):
        yield wanted
        return
    if wanted is False or (wanted is None and _disabled()):
        yield None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield None
        return
    # disable=None is tqdm's word for "off when stderr is no terminal".
    with tqdm(
        desc=title, unit="B", unit_scale=True, disable=None if wanted is None else False
    ) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def _disabled() -> bool:
    names = ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS")
    return any(os.environ.get(name, "").lower() not in ("", "0", "false", "no") for name in names)
