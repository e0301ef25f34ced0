"""What streaming to a GPU needs of PyTorch's CUDA side. On the CPU nothing here is asked."""

from __future__ import annotations

import functools
import logging
from typing import NamedTuple

import torch

from . import _native
from ._environment import flag_from_environment
from ._errors import TrashPandaError, UnsupportedFormatError

_log = logging.getLogger("trash_panda")


class Place(NamedTuple):
    """Where a model computes."""

    device: torch.device  # For PyTorch.
    gpu: _native.Gpu | None  # For the engine; None: it makes tensors in host memory.


def choose_place(device: str | torch.device | None) -> Place:
    """The device that was asked for; of None: the GPU that torch computes on, if it can be used.

    :raises UnsupportedFormatError: weights can't be streamed to such a device.
    :raises TrashPandaError: the GPU can't be used; the message says why.
    """
    if device is None:
        return _default_place()
    chosen = torch.device(device)
    if chosen.type == "cpu":
        return Place(chosen, None)
    if chosen.type != "cuda":
        raise UnsupportedFormatError(
            f'device {str(chosen)!r} can\'t be streamed to; use "cuda" or "cpu"'
        )
    if not torch.cuda.is_available():
        raise TrashPandaError(
            f"device {str(chosen)!r} can't be used: torch {torch.__version__} finds no NVIDIA GPU; "
            'use device="cpu"'
        )
    return _place_on_gpu(torch.cuda.current_device() if chosen.index is None else chosen.index)


def _default_place() -> Place:
    if torch.cuda.is_available():
        try:
            return _place_on_gpu(torch.cuda.current_device())
        except TrashPandaError as error:
            _log.warning("computing on the CPU: %s", error)
    return Place(torch.device("cpu"), None)


def _place_on_gpu(ordinal: int) -> Place:
    is_synchronous = flag_from_environment("SYNCHRONOUS")
    return Place(torch.device("cuda", ordinal), _open_gpu(ordinal, is_synchronous))


@functools.cache
def _open_gpu(ordinal: int, is_synchronous: bool) -> _native.Gpu:
    """The GPU for the engine, opened once, in the context that torch uses."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return _native.Gpu.open(ordinal, is_synchronous=is_synchronous)


def current_stream(gpu: _native.Gpu) -> int:
    """What torch queues its work on now, for the engine to order copies by."""
    return int(torch.cuda.current_stream(gpu.ordinal).cuda_stream)


def free_cached_memory(gpu: _native.Gpu) -> None:
    """Gives back what torch only keeps for later, so that others find room."""
    with torch.cuda.device(gpu.ordinal):
        torch.cuda.empty_cache()
