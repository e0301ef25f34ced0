"""What load() returns."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._handle import OffloadHandle
from ._plan import Plan

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ._bindings import Binding
    from ._hooks import BlockStream


class Offloaded:
    """A model whose blocks stream from a pack.

    `model` is the very object that was given to load(); call it as ever. `device` is where it
    computes, `dtype` the dtype of its weights (None: as they are stored), `plan` the plan that was
    loaded, `handle` what takes the hooks off again. Usable as a context manager that closes at the
    end.
    """

    def __init__(
        self,
        model: nn.Module,
        stream: BlockStream,
        base: list[tuple[Binding, torch.Tensor]],
        *,
        device: torch.device,
        dtype: torch.dtype | None,
        plan: Plan,
        unexpected: list[str],
    ) -> None:
        self.model = model
        self.device = device
        self.dtype = dtype
        self.plan = plan
        self.unexpected = unexpected  # Names in the pack that the model does not use.
        self.handle = OffloadHandle([self.remove])
        self._stream = stream
        self._base = base

    def stats(self) -> dict[str, Any]:
        """Counters since loading; sizes in bytes, times in nanoseconds.

        `read_bytes_base`, `_ram`, `_disk` are totals by tier, `pass_read_bytes_ram`, `_disk` those
        of the last complete pass; `weight_memory_bytes` is what is booked for weights now,
        `weight_memory_bytes_max` the most that ever was; `merged_memory_bytes` is the memory in
        which a block's stacked and joined tensors are made, beside that; `mispredict_count` counts
        blocks that came out of the expected order; `wait_ns` is the time that forwards waited for
        reads. They stay readable after close().
        """
        return dict(self._stream.stats())

    def close(self) -> None:
        """Releases the memory of all weights. Calling the model then raises ReleasedError.

        Raises TrashPandaError while another thread is in the model's forward. A second call does
        nothing. The model can be loaded again.
        """
        if self._stream.closed:
            return
        self._stream.close()
        for binding, placeholder in self._base:
            binding.put(placeholder)
        self._base.clear()

    @property
    def closed(self) -> bool:
        """Whether the weights were released."""
        return self._stream.closed

    def remove(self) -> None:
        """Releases the weights and takes the hooks off, so that others can fill the model."""
        self.close()
        self._stream.remove_hooks()

    def __enter__(self) -> Offloaded:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._stream.closed else f"{len(self._stream.blocks)} streamed blocks"
        return f"<Offloaded {type(self.model).__name__} on {self.device}, {state}>"
