"""Groups of repeated blocks in a model, found by the planner's rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _native

if TYPE_CHECKING:
    from torch import nn


@dataclass
class BlockGroup:
    """Blocks that are numbered under one name."""

    name: str  # Of the container: "model.layers".
    prefixes: list[str]  # One a block, with a final dot: "model.layers.0.".
    nbytes: int  # Of all of them, in the model's own dtypes.


def find_blocks(
    model: nn.Module, *, min_fraction: float | None = None, min_blocks: int | None = None
) -> list[BlockGroup]:
    """The groups of blocks that planning would find in the model, in order of execution.

    :param min_fraction: leaves out groups with a smaller share of the model's bytes (0.01).
    :param min_blocks: leaves out groups of fewer blocks (2).
    """
    from ._dtypes import safetensors_dtype
    from ._targets import collect_targets

    targets = [target for target in collect_targets(model) if target.persistent]
    tensors = [
        (t.names[0], safetensors_dtype(t.tensor.dtype), tuple(t.tensor.shape)) for t in targets
    ]
    total = sum(target.tensor.nbytes for target in targets)
    groups = [
        BlockGroup(
            prefix.removesuffix("."), [f"{name}." for name, _ in blocks], sum(s for _, s in blocks)
        )
        for prefix, blocks in _native.find_blocks(tensors, [])
    ]
    least = (0.01 if min_fraction is None else min_fraction) * total
    count = 2 if min_blocks is None else min_blocks
    return [group for group in groups if group.nbytes >= least and len(group.prefixes) >= count]
