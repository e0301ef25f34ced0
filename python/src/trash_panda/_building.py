"""Contexts that models are built in: cheap parameters, real buffers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch
from torch import nn

_patch_lock = threading.Lock()


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Float tensors that are made without a dtype have this one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Modules built inside hold their parameters on the meta device and their buffers for real.

    A parameter moves when it is registered, before its initialisation: memory that torch.empty()
    reserved is given back untouched.
    """
    with _patch_lock:
        original = nn.Module.register_parameter
        me = threading.get_ident()

        def register(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
            if param is not None and not param.is_meta and threading.get_ident() == me:
                param = nn.Parameter(torch.empty_like(param, device="meta"), requires_grad=False)
            original(self, name, param)

        nn.Module.register_parameter = register  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.register_parameter = original  # type: ignore[method-assign]
