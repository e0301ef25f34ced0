"""How much memory a model's stacked and joined tensors take beside its stream."""

from __future__ import annotations

from collections import Counter
from math import prod
from pathlib import Path

import torch
from torch import nn

from . import _native
from ._dtypes import compute_dtype_name, torch_dtype
from ._keys import KeyMap, make_key_table
from ._merge import Merge
from ._targets import collect_targets


def merged_bytes(
    model: nn.Module,
    checkpoint: Path,
    compute_dtype: str | torch.dtype,
    key_map: KeyMap | None = None,
) -> int:
    """Of the block that takes most; and of all that lies outside of blocks, which stays.

    Blocks of equal shapes use the same memory one after another, those of others have their own.
    """
    source = _native.read_checkpoint(checkpoint)
    shapes = {name: tuple(shape) for name, _, shape in source["tensors"]}
    wanted = [target for target in collect_targets(model) if target.persistent]
    by_name = {name: target.tensor for target in wanted for name in target.names}
    table = make_key_table(model, {name: name for name in shapes}, by_name, key_map)
    if not table.merges:
        return 0
    groups = _native.find_blocks(source["tensors"], [])
    blocks = {block for _, members in groups for block, _ in members}
    used: dict[str, Counter[tuple[int, ...]]] = {}
    for merge in table.merges:
        made = used.setdefault(_block_of(merge, blocks), Counter())
        sources = [(shapes[name], torch.float32) for name in merge.sources if name in shapes]
        if len(sources) == len(merge.sources):  # Else loading says what is missing.
            made.update(tuple(output.shape) for output in merge.outputs(sources).values())
    most: Counter[tuple[int, ...]] = used.pop("", Counter())
    in_blocks: Counter[tuple[int, ...]] = Counter()
    for made in used.values():
        in_blocks |= made  # The larger count of each shape.
    most += in_blocks
    name = compute_dtype_name(compute_dtype)
    width = 4 if name is None else torch_dtype(name).itemsize
    return sum(count * prod(shape) * width for shape, count in most.items())


def _block_of(merge: Merge, blocks: set[str]) -> str:
    parts = merge.sources[0].split(".")
    paths = (".".join(parts[:end]) for end in range(1, len(parts)))
    return next((path for path in paths if path in blocks), "")
