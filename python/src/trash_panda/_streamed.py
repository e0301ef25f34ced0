"""A streamed block: the places of its weights, and the lease while they are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from . import _native
from ._bindings import Binding, Block, Merged, Stored
from ._lora import MergedWeight
from ._merge import MergeMemory, make_merged
from ._outputs import LentMemory
from ._targets import refresh

# A block meets as many sets of addresses as there are slots; more than this means that they do
# not repeat, and remembering them would only grow.
_PLACEMENTS_MAX = 32


class StreamedMerge:
    """Tensors of the block that are made of several stored ones, anew for each use."""

    def __init__(
        self, merged: Merged, outputs: Mapping[str, Tensor], placeholders: Mapping[str, Tensor]
    ) -> None:
        self.sources = [stored.name for stored in merged.sources]
        self.placeholders = dict(placeholders)
        self._merge = merged.merge
        self._outputs = {name: outputs[name] for name in merged.bindings}
        self._slots = {name: _slots_of(binding) for name, binding in merged.bindings.items()}

    def make(self, values: Sequence[Tensor], memory: MergeMemory) -> dict[str, Tensor]:
        return make_merged(self._merge, self._outputs, values, memory)

    def slots(self) -> Iterable[tuple[dict[str, Tensor | None], str]]:
        """Where the tensors go."""
        return (slot for slots in self._slots.values() for slot in slots)

    def put(self, tensors: Mapping[str, Tensor]) -> None:
        for name, slots in self._slots.items():
            for holder, attribute in slots:
                holder[attribute] = tensors[name]


@dataclass(frozen=True)
class _Placement:
    """A lease's memory, as the block needs it."""

    tensors: list[Tensor]  # Parameters, one a binding.
    sources: list[list[Tensor]]  # Of each merge.
    lent: LentMemory  # Of `tensors`.


class StreamedBlock:
    """One block. `placed` are the tensors that its modules hold while `lease` is there."""

    def __init__(
        self, block: Block, placeholders: Sequence[Tensor], merges: Sequence[StreamedMerge]
    ) -> None:
        self.index = block.index
        self.name = block.name
        # The parts of such a block are called one after another: its weights stay until another
        # block is called, or the model's forward ends, not to be read once a part.
        self.lingers = block.in_parts
        self.depth = 0
        self.stays = False  # In place after use, as a resident model's weights.
        self._may_stay = False
        self.lease: _native.Lease | None = None
        self.placed: list[Tensor] = []
        self.lent = LentMemory()  # Of `placed`.
        self._merges = list(merges)
        self._adapted: list[MergedWeight] = []
        self._made: list[Tensor] = []  # In memory that is to be given back.
        self._placements: dict[bytes, _Placement] = {}  # By the addresses of a lease.
        modules = {id(p.module): p.module for b in block.all_bindings() for p in b.places}
        self._recurrent = [m for m in modules.values() if isinstance(m, nn.RNNBase)]
        self._has_buffers = any(binding.is_buffer for binding in block.bindings)
        self._set_bindings(block.bindings, placeholders)
        self._put_placeholders()

    @property
    def placeholders(self) -> list[Tensor]:
        made = [tensor for merge in self._merges for tensor in merge.placeholders.values()]
        return [*self._placeholders, *made]

    def place(self, lease: _native.Lease, memory: MergeMemory) -> None:
        """Sets the lease's tensors in the modules."""
        if self._has_buffers:
            self._keep_buffers(lease)
        key = lease.addresses
        found = self._placements.get(key)
        if found is None:
            if len(self._placements) >= _PLACEMENTS_MAX:
                self._placements.clear()
            found = self._placements[key] = self._wrap(lease)
        self.placed, self.lent = found.tensors, found.lent
        self._put(self.placed)
        if self._merges or self._adapted:
            self._place_made(found.sources, memory)
        self.lease = lease

    def take_away(self, memory: MergeMemory) -> None:
        """Undoes place() and ends the lease."""
        lease, placed = self.lease, self.placed
        if lease is None:
            return
        self._put_placeholders()
        if torch.is_grad_enabled():
            # The output needs no backward pass, but something that the block keeps elsewhere may.
            # The memory is about to hold another block: a new version makes backward refuse.
            torch.autograd.graph.increment_version(placed)
        if self._made:
            self._give_made(memory)
        self.lease, self.placed = None, []
        lease.release()

    def let_stay(self, allowed: bool) -> None:
        """Allows the weights to stay in place after use; those that are made anew never do."""
        self._may_stay = allowed
        self.stays = allowed and not self._merges and not self._adapted

    def holds(self, module: nn.Module) -> bool:
        """Whether the module's weight comes with this block."""
        slots = [(holder, attribute) for holder, attribute, _ in self._slots]
        slots += [slot for merge in self._merges for slot in merge.slots()]
        return any(h is module._parameters and a == "weight" for h, a in slots)

    def adapt(self, weights: Sequence[MergedWeight]) -> None:
        """What is merged into the block's weights from the next use on. Not while in place."""
        self._adapted = list(weights)
        self.let_stay(self._may_stay)

    def forget(self) -> None:
        """Lets go of the streamer's memory, before that closes."""
        self._placements.clear()

    def _set_bindings(self, bindings: Sequence[Stored], placeholders: Sequence[Tensor]) -> None:
        self._bindings = list(bindings)
        self._placeholders = list(placeholders)
        # Flat, with the dictionaries themselves: _put() runs twice for each block of each pass.
        self._slots = [
            (holder, attribute, number)
            for number, binding in enumerate(self._bindings)
            for holder, attribute in _slots_of(binding)
        ]

    def _put(self, tensors: Sequence[Tensor]) -> None:
        """Sets one tensor a binding, at all of its places."""
        for holder, attribute, number in self._slots:
            holder[attribute] = tensors[number]

    def _put_placeholders(self) -> None:
        self._put(self._placeholders)
        if self._merges:
            for merge in self._merges:
                merge.put(merge.placeholders)
        if self._recurrent:
            for module in self._recurrent:
                refresh(module)

    def _place_made(self, sources: Sequence[Sequence[Tensor]], memory: MergeMemory) -> None:
        """Makes what is made of several tensors or of adapters, after the others are placed."""
        try:
            for merge, values in zip(self._merges, sources, strict=True):
                made = merge.make(values, memory)
                self._made += made.values()
                merge.put(made)
            for adapted in self._adapted:
                weight = adapted.module._parameters["weight"]
                assert weight is not None
                self._made.append(adapted.put(weight, memory))
        except BaseException:
            self._give_made(memory)
            self._put_placeholders()
            self.placed = []
            raise
        self.placed = [*self.placed, *self._made]
        self.lent = LentMemory(self.placed)

    def _give_made(self, memory: MergeMemory) -> None:
        memory.give(self._made)
        self._made = []

    def _wrap(self, lease: _native.Lease) -> _Placement:
        arrays = dict(zip(lease.names, lease.arrays(), strict=True))
        # Made outside of inference mode, since they are kept for later passes outside of it.
        with torch.inference_mode(False):
            tensors: list[Tensor] = [
                nn.Parameter(from_dlpack(arrays[b.stored.name]), requires_grad=False)
                for b in self._bindings
            ]
            sources = [
                [from_dlpack(arrays[name]) for name in merge.sources] for merge in self._merges
            ]
        return _Placement(tensors, sources, LentMemory(tensors))

    def _keep_buffers(self, lease: _native.Lease) -> None:
        """Gives the block's buffers memory of their own, once: forwards may change them."""
        arrays = dict(zip(lease.names, lease.arrays(), strict=True))
        bindings, placeholders = [], []
        for binding, placeholder in zip(self._bindings, self._placeholders, strict=True):
            if not binding.is_buffer:
                bindings.append(binding)
                placeholders.append(placeholder)
                continue
            with torch.inference_mode(False):
                value = from_dlpack(arrays[binding.stored.name]).clone()
            binding.put(value)
        self._set_bindings(bindings, placeholders)
        self._has_buffers = False


def _slots_of(binding: Binding) -> list[tuple[dict[str, Tensor | None], str]]:
    """Where the binding's tensor is to be set, at all of its places."""
    return [(place.holder(), place.attribute) for place in binding.places]
