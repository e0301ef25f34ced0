"""Low-rank adapters on a streaming model: merged into weights as they come, or computed beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ._errors import UnsupportedFormatError
from ._lora_layers import Adapted
from ._merge import MergeMemory

# Of the fp32 rows in which weights are merged: within a core's second-level cache, or close to it.
_CHUNK_BYTES = 2**21


@dataclass
class Lora:
    """An adapter that a model has. `scale` is the user's, beside those of its parts."""

    name: str
    layers: list[Adapted]
    scale: float
    mode: str  # "merge" or "side".

    @property
    def size_bytes(self) -> int:
        return sum(layer.part.down.nbytes + layer.part.up.nbytes for layer in self.layers)


class MergedWeight:
    """A weight with what adapters add to it, for the time that it is in its place."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.added: list[tuple[Adapted, float]] = []

    def put(self, weight: Tensor, memory: MergeMemory) -> Tensor:
        """Sets `weight`, merged, in the module; returns what is to be given back."""
        target = memory.take(weight)
        merge(weight, self.added, target)
        self.module._parameters["weight"] = target  # type: ignore[assignment]
        return target


def check_mergeable(adapted: Adapted) -> None:
    """Raises UnsupportedFormatError for a weight that can't be added to."""
    dtype = adapted.weight.dtype
    if not dtype.is_floating_point or dtype.itemsize < 2:
        raise UnsupportedFormatError(
            f"{adapted.path}: adapters can't be merged into weights of {dtype}; use mode='side', "
            "or another compute_dtype"
        )


def merge(weight: Tensor, added: Sequence[tuple[Adapted, float]], target: Tensor) -> None:
    """Writes `weight + sum(scale * up @ down)` to `target`: in fp32, rounded once."""
    factors = [_factors(adapted, scale) for adapted, scale in added]
    rows = weight.reshape(weight.shape[0], -1)
    into = target.view(rows.shape)
    step = max(1, _CHUNK_BYTES // (4 * max(1, rows.shape[1])))
    with torch.no_grad():
        for first in range(0, rows.shape[0], step):
            chunk = slice(first, first + step)
            total = rows[chunk].to(torch.float32)
            for left, right, scale in factors:
                total.addmm_(left[chunk], right, alpha=scale)
            into[chunk] = total


def _factors(adapted: Adapted, scale: float) -> tuple[Tensor, Tensor, float]:
    """Two matrices whose product has a row for each row of the weight, and the scale."""
    down = adapted.part.down.to(torch.float32).flatten(1)
    up = adapted.part.up.to(torch.float32).flatten(1)
    left, right = (down.t(), up.t()) if adapted.is_transposed else (up, down)
    return left, right, scale * adapted.part.scale


class SidePath:
    """A forward hook of a layer that adds what an adapter makes of its input, as PEFT does."""

    def __init__(self, lora: Lora, adapted: Adapted) -> None:
        self.module = module = adapted.module
        self._lora = lora
        self._adapted = adapted
        is_plain = isinstance(module, nn.Conv2d) and module.padding_mode == "zeros"
        if not is_plain and not isinstance(module, nn.Linear) and not adapted.is_transposed:
            raise UnsupportedFormatError(
                f"{adapted.path} is a {type(module).__name__}, beside which no adapter can "
                "be computed; use mode='merge'"
            )

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        part = self._adapted.part
        hidden = args[0].to(torch.float32)
        down, up = part.down.to(torch.float32), part.up.to(torch.float32)
        if isinstance(module, nn.Conv2d):
            hidden = functional.conv2d(
                hidden, down, None, module.stride, module.padding, module.dilation
            )
            beside = functional.conv2d(hidden, up)
        else:
            beside = functional.linear(functional.linear(hidden, down), up)
        return (output + beside * (self._lora.scale * part.scale)).to(output.dtype)
