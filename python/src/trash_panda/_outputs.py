"""What a block hands back: it must not need the block's weights once they are away."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

Change = Callable[[Tensor], Tensor]


class LentMemory:
    """The memory of a block's weights, which goes to another block after this one."""

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        spans = [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors if t.nbytes > 0]
        self._spans = spans
        # Around all of them: what a block computes is hardly ever in between.
        self._first = min((first for first, _ in spans), default=0)
        self._last = max((last for _, last in spans), default=0)

    def without(self, output: Any) -> Any:
        """The output with copies of the tensors that lie in this memory, or the output itself.

        Raises GradientNeeded when a backward pass could start from one of its tensors.
        """
        if isinstance(output, Tensor):
            return self._own(output)
        return map_tensors(self._own, output)

    def _own(self, tensor: Tensor) -> Tensor:
        if tensor.requires_grad:
            raise GradientNeeded
        address = _address(tensor)
        if self._first <= address < self._last and any(
            first <= address < last for first, last in self._spans
        ):
            with torch.no_grad():
                return tensor.clone()
        return tensor


class GradientNeeded(Exception):
    """Weights that are gone before a backward pass can't be trained through."""


def map_tensors(change: Change, value: Any, around: frozenset[int] = frozenset()) -> Any:
    """Replaces the tensors in nested lists, tuples, mappings and dataclasses.

    Only containers with a changed tensor are copied; without one, the result is `value` itself.
    `around` has the identities of the containers that hold `value`, which may hold themselves.
    """
    if isinstance(value, Tensor):
        return change(value)
    if id(value) in around:
        return value
    inner = around | {id(value)}
    if isinstance(value, Mapping):
        changed = {k: map_tensors(change, v, inner) for k, v in value.items()}
        return _with_items(value, {k: v for k, v in changed.items() if v is not value[k]})
    if isinstance(value, (list, tuple)):
        items = [map_tensors(change, item, inner) for item in value]
        return _like(value, items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
        changed = {k: map_tensors(change, v, inner) for k, v in fields.items()}
        return _with_fields(value, {k: v for k, v in changed.items() if v is not fields[k]})
    return value


def _with_items(value: Any, changed: dict[Any, Any]) -> Any:
    if not changed:
        return value
    result = copy.copy(value)
    for key, item in changed.items():
        result[key] = item
    return result


def _with_fields(value: Any, changed: dict[str, Any]) -> Any:
    if not changed:
        return value
    result = copy.copy(value)
    for name, item in changed.items():
        object.__setattr__(result, name, item)  # The dataclass may be frozen.
    return result


def _like(value: Any, items: list[Any]) -> Any:
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    if isinstance(value, list):
        result = copy.copy(value)
        result[:] = items
        return result
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def _address(tensor: Tensor) -> int:
    """Where a tensor's memory starts; 0 where it has none of its own (sparse, on meta)."""
    if tensor.layout is not torch.strided or tensor.is_meta:
        return 0
    try:
        return tensor.data_ptr()
    except RuntimeError:  # A wrapper around other tensors.
        return 0
