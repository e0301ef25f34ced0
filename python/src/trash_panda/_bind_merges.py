"""Binds what is made of several stored tensors to the model, and to the block that holds them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ._bindings import Binding, Merged
from ._errors import CheckpointError, UnsupportedFormatError
from ._keys import KeyTable
from ._pack import Pack, StoredTensor
from ._targets import Target


def bind_merges(
    table: KeyTable, stored: dict[str, StoredTensor], wanted: Sequence[Target]
) -> list[Merged]:
    """Binds what the merges make. Raises CheckpointError when a shape is not the model's."""
    targets = {name: target for target in wanted for name in target.names}
    result = []
    for merge in table.merges:
        sources = [stored[name] for name in merge.sources]
        outputs = merge.outputs([(source.shape, torch.float32) for source in sources])
        bindings = {
            name: Binding(targets[name].tensor, targets[name].places)
            for name in outputs
            if name in targets
        }
        for name, binding in bindings.items():
            if outputs[name].shape != binding.placeholder.shape:
                raise CheckpointError(
                    f"{name} of the model has shape {list(binding.placeholder.shape)}, what the "
                    f"checkpoint gives ({merge}) has {list(outputs[name].shape)}; is it the "
                    "checkpoint of this model, built from the same config?"
                )
        result.append(Merged(merge, sources, bindings))
    return result


def place_merges(
    pack: Pack, merged: Sequence[Merged]
) -> tuple[list[Merged], dict[int, list[Merged]]]:
    """Those of the base, and those of each block by its index."""
    homes = {tensor.name: -1 for extent in pack.base for tensor in extent.tensors}
    for index, extent in enumerate(pack.blocks):
        homes.update({tensor.name: index for tensor in extent.tensors})
    base: list[Merged] = []
    blocks: dict[int, list[Merged]] = {}
    for each in merged:
        found = sorted({homes[source.name] for source in each.sources})
        if len(found) > 1:
            places = ["the base" if i < 0 else pack.blocks[i].name for i in found[:2]]
            raise UnsupportedFormatError(
                f"{pack.path}: {each.merge.name} of the model is made of tensors ({each.merge}) "
                f"that lie in {len(found)} parts of the pack, such as {' and '.join(places)}; plan "
                "it again with --group, so that a block holds them all"
            )
        home = found[0]
        if home >= 0 and any(binding.is_buffer for binding in each.bindings.values()):
            raise UnsupportedFormatError(
                f"{pack.path}: {each.merge.name} is a buffer that is made of several tensors "
                f"({each.merge}) of block {pack.blocks[home].name}, which streaming can't do"
            )
        (base if home < 0 else blocks.setdefault(home, [])).append(each)
    return base, blocks
