"""A GPU of the project's fake driver, whose memory is memory of the host, for models on PyTorch.

What PyTorch would compute on the GPU, it computes on the CPU, in the same memory; before it reads,
it waits for the stream, as a kernel on that stream would.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import dlpack

from trash_panda import _assemble, _gpu, _native, _streamed
from trash_panda._environment import flag_from_environment

# kDLCPU and kDLCUDA. @see dlpack.h
_CPU_OF_DLPACK, _CUDA_OF_DLPACK = 1, 2


def library() -> Path | None:
    """The fake driver, where the C++ tests are built or were moved to."""
    moved = os.environ.get("TP_FAKE_CUDA")
    if moved:
        return Path(moved)
    build = Path(__file__).parents[2] / "build"
    # Not a sanitizer's, which this program could not load.
    trees = [build / name for name in ("release", "dev")]
    found = [tree / "tests/fake_cuda/libcuda.so.1" for tree in trees]
    return max(
        (file for file in found if file.exists()), key=lambda f: f.stat().st_mtime, default=None
    )


class _DlTensor(ctypes.Structure):
    """The beginning of a DLManagedTensor: as far as the device."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
    )


def _in_host_memory(array: Any) -> Tensor:
    """The tensor of an array that says it is on the GPU."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _DlTensor.from_address(pointer(array, b"dltensor"))
    assert (tensor.device_type, tensor.device_id) == (_CUDA_OF_DLPACK, 0)
    tensor.device_type = _CPU_OF_DLPACK
    return dlpack.from_dlpack(array)


class FakeGpu:
    """GPU 0 of the fake driver, and the stream that PyTorch computes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.driver = ctypes.CDLL(str(path))
        self.cache_clearings = 0
        self.streams_asked: list[int] = []
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxPushCurrent_v2", context)
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), 1)
        self.stream = stream.value or 0

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self.driver, function)(*arguments)
        assert status == 0, f"{function} gave {status}"

    def synchronize(self) -> None:
        self._call("cuStreamSynchronize", ctypes.c_void_p(self.stream))

    def used_bytes(self) -> int:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return total.value - free.value

    def compute_on(self, model: nn.Module) -> None:
        """Lets the blocks of a loaded model wait for the stream before they read."""
        for layer in model.layers:
            layer.register_forward_pre_hook(lambda module, args: self.synchronize())

    def close(self) -> None:
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(self.stream))
        self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        self._call("cuDevicePrimaryCtxRelease_v2", 0)


@contextlib.contextmanager
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpu]:
    path = library()
    if path is None:
        pytest.skip("the fake driver is not built: ./bootstrap build")
    gpu = FakeGpu(path)
    opened = functools.cache(functools.partial(_native.Gpu.open, 0, str(path)))

    def clear_cache() -> None:
        gpu.cache_clearings += 1

    def choose_place(device: object) -> _gpu.Place:
        is_synchronous = flag_from_environment("SYNCHRONOUS")
        return _gpu.Place(torch.device("cpu"), opened(is_synchronous=is_synchronous))

    def current_stream(device: int) -> Any:
        gpu.streams_asked.append(device)
        return SimpleNamespace(cuda_stream=gpu.stream)

    monkeypatch.setattr(_gpu, "choose_place", choose_place)
    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(torch.cuda, "empty_cache", clear_cache)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    for module in (_assemble, _streamed):
        monkeypatch.setattr(module, "from_dlpack", _in_host_memory)
    try:
        yield gpu
    finally:
        gpu.close()
