"""Models one after another: load, use, release, remembering how much memory the use took."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._earlier import install_offload, stream_load
from ._folders import cache_folder
from ._handle import OffloadHandle
from ._hardware import detect_hardware
from ._plan import Plan
from ._planning import plan as make_plan
from ._torch import require_torch
from ._units import format_bytes

if TYPE_CHECKING:
    import torch
    from torch import nn

_log = logging.getLogger("trash_panda")
# What plan() takes to compare a checkpoint with the model, and loading to do it.
_OF_LOADING = ("device", "key_map", "skip_prefixes")


@dataclass(frozen=True)
class ReleaseReport:
    """Memory of this process around release(), in bytes."""

    before_bytes: int
    after_bytes: int

    def __str__(self) -> str:
        before, after = format_bytes(self.before_bytes), format_bytes(self.after_bytes)
        return f"memory of this process: {before} before, {after} after"


def release(model: nn.Module, handle: OffloadHandle) -> ReleaseReport:
    """Removes the handle and lets the weights go. The model can be loaded again."""
    before = _memory("VmRSS")
    handle.remove()
    gc.collect()
    report = ReleaseReport(before, _memory("VmRSS"))
    _log.info("released %s; %s", type(model).__name__, report)
    return report


@contextlib.contextmanager
def stage(
    build: Callable[[], nn.Module],
    checkpoint: str | os.PathLike[str],
    key: str | None = None,
    **plan_kw: Any,
) -> Iterator[tuple[nn.Module, Plan]]:
    """A model for the time of a `with`: built, planned, loaded; released at its end.

    What its use took beside the weights is remembered by `key`, across processes, and planned with
    the next time on a machine with a GPU.

    :param build: makes the model; its parameters are put on the meta device.
    :param key: default: the checkpoint's path. Give one for each size of input.
    :param plan_kw: as of plan().
    """
    require_torch()
    from ._building import parameters_on_meta

    key = os.fspath(checkpoint) if key is None else key
    if "activation_vram" not in plan_kw and detect_hardware().vram_total:
        plan_kw["activation_vram"] = remembered_activation(key)
    with parameters_on_meta():
        model = build()
    planned = make_plan(model, checkpoint, **plan_kw)
    both = {name: plan_kw[name] for name in _OF_LOADING if name in plan_kw}
    stream_load(model, checkpoint, plan=planned, **both)
    handle = install_offload(model, device=plan_kw.get("device"))
    meter = PeakMeter(plan_kw.get("device"))
    try:
        yield model, planned
        _remember(key, meter.peak_bytes())
    finally:
        release(model, handle)


def measure_activation_vram(
    fn: Callable[[], object], plan: Plan | None = None, device: str | torch.device | None = None
) -> int:
    """Calls `fn` once and returns the memory in bytes that it took at its peak, beside what was
    taken before: of the GPU that it computes on, as torch counts it, or of this process, less the
    weights that were read meanwhile to stay.

    :param device: default: the GPU that torch computes on, else the CPU.
    """
    meter = PeakMeter(device)
    fn()
    peak_bytes = meter.peak_bytes()
    _log.info("activations took %s of the memory of %s", format_bytes(peak_bytes), meter.where)
    return peak_bytes


class PeakMeter:
    """The most memory that is taken from now on, beside what is taken now and weights that stay.

    On a GPU that is torch's: streamed weights are in memory of the engine, and not counted.
    """

    def __init__(self, device: str | torch.device | None = None) -> None:
        from ._gpu import choose_place

        self._device = choose_place(device).device
        gc.collect()
        if self._device.type == "cpu":
            self.where = "this process"
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets VmHWM.
            self._before, self._kept_before = _memory("VmRSS"), _kept_bytes()
        else:
            import torch

            self.where = str(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)

    def peak_bytes(self) -> int:
        if self._device.type == "cpu":
            kept = max(0, _kept_bytes() - self._kept_before)
            return max(0, _memory("VmHWM") - self._before - kept)
        import torch

        return max(0, torch.cuda.max_memory_allocated(self._device) - self._before)


def _kept_bytes() -> int:
    """Of weights that were read to stay, of all models that stream now."""
    hooks = sys.modules.get("trash_panda._hooks")
    streams = [] if hooks is None else list(hooks.streams)
    kept: int = sum(stream.kept_bytes() for stream in streams)
    return kept


def remembered_activation(key: str) -> int | None:
    """What stage() remembers for a key, in bytes."""
    value = _read_notes().get(key)
    return value if isinstance(value, int) else None


def _remember(key: str, size_bytes: int) -> None:
    notes = {**_read_notes(), key: max(size_bytes, remembered_activation(key) or 0)}
    file = _notes_file()
    partial = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(notes, indent=1), encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        _log.warning("can't remember the activations of %s: %s", key, error)


def _notes_file() -> Path:
    return cache_folder() / "activations.json"


def _read_notes() -> dict[str, Any]:
    try:
        notes = json.loads(_notes_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def process_memory() -> int:
    """Memory of this process now, in bytes; 0 where the system does not tell."""
    return _memory("VmRSS")


def _memory(what: str) -> int:
    """A figure of /proc/self/status, in bytes; 0 where there is none."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(what + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
