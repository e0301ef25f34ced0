"""Reads a file past the page cache, as fast as its drive gives it: what peers are compared with."""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from pathlib import Path

MIB = 1024 * 1024
# Bytes of a request, and how many are in flight.
SETTINGS = [(MIB, 1), (MIB, 4), (MIB, 8), (4 * MIB, 2), (4 * MIB, 4), (4 * MIB, 8), (8 * MIB, 8)]
TRIAL_BYTES = 1024 * MIB

Setting = tuple[int, int]


def read_seconds(path: Path, setting: Setting, size_max_bytes: int | None = None) -> float:
    """Seconds for the whole file, or its first bytes."""
    request_bytes, depth = setting
    size_bytes = min(path.stat().st_size, size_max_bytes or path.stat().st_size)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    # With small pages a virtual drive was seen to give 0.6 of its rate.
    memory = mmap.mmap(-1, request_bytes * depth, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    numbers = itertools.count()
    done_bytes = [0] * depth

    def read_some(worker: int) -> None:
        target = memoryview(memory)[worker * request_bytes : (worker + 1) * request_bytes]
        while (offset := next(numbers) * request_bytes) < size_bytes:
            done_bytes[worker] += os.preadv(file, [target], offset)

    threads = [threading.Thread(target=read_some, args=(worker,)) for worker in range(depth)]
    start_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed_s = time.perf_counter() - start_s
    os.close(file)
    if sum(done_bytes) < size_bytes:
        raise OSError(f"{path}: {sum(done_bytes)} of {size_bytes} bytes were read")
    return elapsed_s


def best_setting(path: Path) -> Setting:
    """The fastest of a few settings, each tried twice, in turn."""
    trials: dict[Setting, list[float]] = {setting: [] for setting in SETTINGS}
    for _ in range(2):
        for setting in SETTINGS:
            trials[setting].append(read_seconds(path, setting, TRIAL_BYTES))
    return min(SETTINGS, key=lambda setting: min(trials[setting]))
