"""Tensors that a library makes of several stored ones: stacked experts, joined projections."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._errors import CheckpointError

_SOURCES_SHOWN = 3


class Merge:
    """One conversion of transformers: some stored tensors in, one or more of the model's out."""

    def __init__(self, model: nn.Module, converter: Any, name: str) -> None:
        self.name = name  # Of the first tensor that it makes.
        self._model = weakref.ref(model)
        self._converter = converter
        self._parts: dict[str, list[str]] = {}  # Stored names by the pattern that they matched.

    def add(self, pattern: str, source: str) -> None:
        self._parts.setdefault(pattern, []).append(source)

    @property
    def sources(self) -> list[str]:
        """Names of the stored tensors, in an order that only depends on the conversion."""
        patterns = [p for p in self._converter.source_patterns if p in self._parts]
        return [source for pattern in patterns for source in self._parts[pattern]]

    def targets(self) -> list[str]:
        """Names of the tensors that it makes."""
        first, *others = self._converter.target_patterns
        return [self.name, *(self.name.replace(first, other) for other in others)]

    def __str__(self) -> str:
        operations = " and ".join(type(each).__name__ for each in self._converter.operations)
        sources = self.sources
        more = len(sources) - _SOURCES_SHOWN
        shown = ", ".join(sources[:_SOURCES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"{operations} of {shown}"

    def compute(self, values: Sequence[Tensor]) -> dict[str, Tensor]:
        """The model's tensors by name, made by transformers' own code. `values` as `sources`."""
        model = self._model()
        assert model is not None
        by_name = dict(zip(self.sources, values, strict=True))
        converter = copy.deepcopy(self._converter)  # It collects its tensors in itself.
        for pattern, sources in self._parts.items():
            for source in sources:
                converter.add_tensor(self.name, source, pattern, by_name[source])
        made = converter.convert(self.name, model=model, config=getattr(model, "config", None))
        return {key: value[0] if isinstance(value, list) else value for key, value in made.items()}

    def outputs(self, shapes: Sequence[tuple[Sequence[int], torch.dtype]]) -> dict[str, Tensor]:
        """What compute() gives for sources of these shapes, on the meta device.

        Raises CheckpointError when the sources don't go together.
        """
        values = [torch.empty(tuple(s), dtype=dtype, device="meta") for s, dtype in shapes]
        try:
            return self.compute(values)
        except Exception as error:
            raise CheckpointError(
                f"{self.name} of the model can't be made from the checkpoint ({self}): {error}"
            ) from error

    def pieces(self, made: Tensor) -> list[Tensor] | None:
        """Views of a tensor that compute() made, one a source, to copy the sources into.

        None where the conversion is more than stacking and joining.
        """
        dims = _stack_and_join(self._converter.operations)
        if dims is None:
            return None
        stack_dim, join_dim = dims
        counts = [len(self._parts[p]) for p in self._converter.source_patterns if p in self._parts]
        if stack_dim is None:
            # Of equal sizes, or they are not the sources' and won't be used.
            return list(torch.chunk(made, sum(counts), dim=join_dim or 0))
        joined = [made] if join_dim is None else torch.chunk(made, len(counts), dim=join_dim)
        return [piece for part in joined for piece in part.unbind(stack_dim)]


def _stack_and_join(operations: Sequence[Any]) -> tuple[int | None, int | None] | None:
    """The dimensions that the operations stack and join along, when that is all that they do."""
    from transformers import core_model_loading as loading

    kinds = [type(each) for each in operations]
    if kinds == [loading.MergeModulelist]:
        return operations[0].dim, None
    if kinds == [loading.MergeModulelist, loading.Concatenate]:
        return operations[0].dim, operations[1].dim
    if kinds == [loading.Concatenate]:
        return None, operations[0].dim
    return None


class MergeMemory:
    """Memory that merged tensors are made in, used again by the next block of the same shapes."""

    def __init__(self, device: torch.device) -> None:
        self.allocated_bytes = 0
        self._device = device
        self._free: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = {}

    def take(self, like: Tensor) -> Tensor:
        free = self._free.setdefault((like.shape, like.dtype), [])
        if free:
            return free.pop()
        with torch.inference_mode(False):
            empty = torch.empty(like.shape, dtype=like.dtype, device=self._device)
            made = nn.Parameter(empty, requires_grad=False)
        self.allocated_bytes += made.nbytes
        return made

    def give(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self._free[tensor.shape, tensor.dtype].append(tensor)


def make_merged(
    merge: Merge, outputs: Mapping[str, Tensor], values: Sequence[Tensor], memory: MergeMemory
) -> dict[str, Tensor]:
    """Merges `values`, in order of the merge's sources, into memory that is to be given back.

    `outputs` are what is made, on the meta device. Stacking and joining copy each value once, to
    where it belongs; other conversions are computed first.
    """
    made = {name: memory.take(output) for name, output in outputs.items()}
    with torch.no_grad():
        pieces = merge.pieces(next(iter(made.values()))) if len(made) == 1 else None
        if pieces is not None and [p.shape for p in pieces] == [v.shape for v in values]:
            torch._foreach_copy_(pieces, list(values))
        else:
            computed = merge.compute(values)
            for name, tensor in made.items():
                tensor.copy_(computed[name])
    return made
