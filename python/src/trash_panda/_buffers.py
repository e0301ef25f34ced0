"""Buffers that no checkpoint holds (rotary tables, position ids), computed again.

A model built on the meta device has none of their values. Its class knows how to make them, so
the model is built once more from its config, with parameters on meta, where they cost nothing,
and buffers real.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._errors import CheckpointError
from ._targets import Target

_patch_lock = threading.Lock()


def rebuild_buffers(model: nn.Module, lacking: Sequence[Target]) -> list[Tensor]:
    """The values of `lacking`, buffers of `model` on the meta device, in the same order.

    Each has the dtype that the model declares. Raises CheckpointError naming the buffers when
    there is no config to build the model from, or the class can't be built from it.
    """
    skeletons: dict[str, dict[str, Tensor]] = {}
    values = []
    for target in lacking:
        path = _configured_ancestor(model, target)
        if path not in skeletons:
            skeletons[path] = _skeleton_buffers(model.get_submodule(path), lacking)
        value = skeletons[path].get(target.names[0].removeprefix(path + "." if path else ""))
        if value is None or value.is_meta or value.shape != target.tensor.shape:
            raise _cannot_rebuild(lacking, "building the model from its config did not make them")
        values.append(value.to(target.tensor.dtype))
    return values


def _configured_ancestor(model: nn.Module, target: Target) -> str:
    """Path of the outermost module around the buffer that has a config, the model itself first."""
    parts = target.names[0].split(".")[:-1]
    for length in range(len(parts) + 1):
        path = ".".join(parts[:length])
        if getattr(model.get_submodule(path), "config", None) is not None:
            return path
    raise _cannot_rebuild([target], f"{type(model).__name__} has no config to build it from")


def _skeleton_buffers(module: nn.Module, lacking: Sequence[Target]) -> dict[str, Tensor]:
    try:
        with (
            torch.random.fork_rng(devices=[]),
            torch.device("cpu"),
            _default_dtype(_declared_dtype(module)),
            _parameters_on_meta(),
        ):
            skeleton = _build_again(module)
    except Exception as error:
        raise _cannot_rebuild(
            lacking, f"{type(module).__name__} can't be built from its config: {error}"
        ) from error
    return dict(skeleton.named_buffers(remove_duplicate=False))


def _build_again(module: nn.Module) -> nn.Module:
    kind: Any = type(module)
    if hasattr(kind, "from_config"):  # diffusers
        built = kind.from_config(module.config)
    else:  # transformers, and whoever builds models from one config object
        built = kind(copy.deepcopy(module.config))
    if not isinstance(built, nn.Module):
        raise TypeError(f"got a {type(built).__name__}, not a module")
    return built


def _declared_dtype(module: nn.Module) -> torch.dtype:
    """The default dtype that the model was built under, by its first float parameter."""
    for parameter in module.parameters():
        if parameter.dtype in (torch.bfloat16, torch.float16, torch.float32):
            return parameter.dtype
    return torch.get_default_dtype()


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Modules built inside hold their parameters on the meta device and their buffers for real.

    A parameter moves when it is registered, before its initialisation: memory that torch.empty()
    reserved is given back untouched.
    """
    with _patch_lock:
        original = nn.Module.register_parameter

        def register(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
            if param is not None and not param.is_meta:
                param = nn.Parameter(torch.empty_like(param, device="meta"), requires_grad=False)
            original(self, name, param)

        nn.Module.register_parameter = register  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.register_parameter = original  # type: ignore[method-assign]


def _cannot_rebuild(lacking: Sequence[Target], why: str) -> CheckpointError:
    names = ", ".join(target.names[0] for target in lacking[:5])
    return CheckpointError(
        f"buffers that no checkpoint holds have no values on the meta device ({names}), and {why}; "
        "give them real ones after building the model: "
        "module.register_buffer(name, value, persistent=False)"
    )
