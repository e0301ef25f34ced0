"""How a pack's tensors go into a model, as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ._merge import Merge
from ._pack import StoredTensor
from ._targets import Place, Target


@dataclass
class Binding:
    """A tensor and the places of the model that get it."""

    placeholder: Tensor  # The model's own tensor, usually on the meta device.
    places: list[Place] = field(default_factory=list)

    @property
    def is_buffer(self) -> bool:
        return self.places[0].is_buffer

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for place in self.places for name in place.names)

    def get(self) -> Tensor:
        """The tensor that its places hold now."""
        return self.places[0].get()

    def put(self, tensor: Tensor) -> None:
        """Sets the tensor at all places."""
        for place in self.places:
            place.put(tensor)


@dataclass
class Stored(Binding):
    """A binding to one tensor of the pack."""

    stored: StoredTensor = field(kw_only=True)


@dataclass
class Merged:
    """Tensors that are made of several of the pack: what goes in, what comes out."""

    merge: Merge
    sources: list[StoredTensor]
    bindings: dict[str, Binding]  # By the name that the merge gives its output.


@dataclass
class Block:
    """A streamed block and the modules whose forward needs it."""

    index: int  # Of the pack's blocks.
    name: str
    bindings: list[Stored]
    merged: list[Merged]
    triggers: list[nn.Module]
    # Whether one of the triggers is only a part of the block, so that a pass calls several.
    in_parts: bool

    def all_bindings(self) -> Iterable[Binding]:
        yield from self.bindings
        for merged in self.merged:
            yield from merged.bindings.values()


@dataclass
class Match:
    """How a pack's tensors go into a model."""

    base: list[Stored]
    base_merged: list[Merged]
    blocks: list[Block]
    missing: list[Target]  # Allowed to be missing.
    unexpected: list[str]

    def stored(self) -> Iterable[tuple[StoredTensor, Binding]]:
        """Every stored tensor that is used, and what it, or what is made of it, is bound to."""
        for binding in (*self.base, *(b for block in self.blocks for b in block.bindings)):
            yield binding.stored, binding
        for merged in (*self.base_merged, *(m for block in self.blocks for m in block.merged)):
            for stored in merged.sources:
                yield stored, next(iter(merged.bindings.values()))


def same_bytes(left: Tensor, right: Tensor) -> bool:
    """Whether both are the same in shape, dtype and every bit."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    with torch.no_grad():
        return torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8))
