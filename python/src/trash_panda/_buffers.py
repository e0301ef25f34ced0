"""Buffers that no checkpoint holds (rotary tables, position ids), computed again.

A model built on the meta device has none of their values. Its class knows how to make them, so
the model is built once more from its config, with parameters on meta, where they cost nothing,
and buffers real.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ._building import default_dtype, parameters_on_meta
from ._errors import CheckpointError
from ._targets import Target


@dataclass(frozen=True)
class Attribute:
    """A tensor that a module keeps without registering it."""

    module: nn.Module
    path: str  # Of the module.
    name: str

    def put(self, value: Tensor) -> None:
        self.module.__dict__[self.name] = value


def unregistered(model: nn.Module) -> list[Attribute]:
    """The attributes of the model's modules that are tensors on the meta device."""
    return [
        Attribute(module, path, name)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor) and value.is_meta
    ]


def rebuild_buffers(model: nn.Module, lacking: Sequence[Target]) -> list[Tensor]:
    """The values of `lacking`, buffers of `model` on the meta device, in the same order.

    Each has the dtype that the model declares. Raises CheckpointError naming the buffers when
    there is no config to build the model from, or the class can't be built from it.
    """
    names = [target.names[0] for target in lacking]
    values = _rebuild(model, names)
    for target, value in zip(lacking, values, strict=True):
        if value.shape != target.tensor.shape:
            raise _cannot_rebuild(names, "building the model from its config made other shapes")
    return [v.to(t.tensor.dtype) for t, v in zip(lacking, values, strict=True)]


def rebuild_attributes(model: nn.Module, lacking: Sequence[Attribute]) -> list[Tensor]:
    """The values of `lacking`, in the same order, as the model's class makes them."""
    return _rebuild(model, [f"{each.path}.{each.name}".lstrip(".") for each in lacking])


def _rebuild(model: nn.Module, names: Sequence[str]) -> list[Tensor]:
    skeletons: dict[str, nn.Module] = {}
    values = []
    for name in names:
        path = _configured_ancestor(model, name)
        if path not in skeletons:
            skeletons[path] = _skeleton(model.get_submodule(path), names)
        owner, _, attribute = name.removeprefix(path + "." if path else "").rpartition(".")
        value = getattr(skeletons[path].get_submodule(owner), attribute, None)
        if not isinstance(value, Tensor) or value.is_meta:
            raise _cannot_rebuild(names, "building the model from its config did not make them")
        values.append(value)
    return values


def _configured_ancestor(model: nn.Module, name: str) -> str:
    """Path of the outermost module around the tensor that has a config, the model itself first."""
    parts = name.split(".")[:-1]
    for length in range(len(parts) + 1):
        path = ".".join(parts[:length])
        if getattr(model.get_submodule(path), "config", None) is not None:
            return path
    raise _cannot_rebuild([name], f"{type(model).__name__} has no config to build it from")


def _skeleton(module: nn.Module, names: Sequence[str]) -> nn.Module:
    """The module built again, with its parameters on the meta device and all else real."""
    try:
        with (
            torch.random.fork_rng(devices=[]),
            torch.device("cpu"),
            default_dtype(_declared_dtype(module)),
            parameters_on_meta(),
        ):
            return _build_again(module)
    except Exception as error:
        raise _cannot_rebuild(
            names, f"{type(module).__name__} can't be built from its config: {error}"
        ) from error


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


def _cannot_rebuild(names: Sequence[str], why: str) -> CheckpointError:
    shown = ", ".join(names[:5])
    return CheckpointError(
        f"buffers that no checkpoint holds have no values on the meta device ({shown}), and {why}; "
        "give them real ones after building the model: "
        "module.register_buffer(name, value, persistent=False)"
    )
