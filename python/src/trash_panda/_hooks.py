"""Forward hooks that put a block's weights in place for the time of its forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from . import _native
from ._bindings import Block
from ._errors import ReleasedError, TrashPandaError
from ._forward_guard import ForwardGuard
from ._graphs import outside_of_graphs
from ._guards import Guards, NotCopyable, refuse_state_dict
from ._merge import MergeMemory
from ._outputs import any_requires_grad, without_lent_memory
from ._placeholder import release
from ._streamed import StreamedBlock


class BlockStream:
    """The hooks of one model. Holds the streamer, not the model: it lives as long as its hooks."""

    def __init__(self, streamer: _native.Streamer) -> None:
        self.guard = ForwardGuard()
        self.blocks: list[StreamedBlock] = []
        self._streamer: _native.Streamer | None = streamer
        self._last_stats: dict[str, Any] | None = None
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._lingering: StreamedBlock | None = None
        self._merge_memory = MergeMemory()
        self._guards: Guards | None = None

    def install(self, model: nn.Module, blocks: Sequence[tuple[Block, StreamedBlock]]) -> None:
        """Hooks the model and the modules of its blocks."""
        self.blocks = [streamed for _, streamed in blocks]
        bindings = [binding for block, _ in blocks for binding in block.all_bindings()]
        self._guards = Guards(model, [name for each in bindings for name in each.names])
        self._hook(model, _ModelHooks(self))
        for block, streamed in blocks:
            hooks = _BlockHooks(self, streamed)
            for module in block.triggers:
                self._hook(module, hooks)
                self._handles.append(
                    module.register_state_dict_pre_hook(refuse_state_dict)  # type: ignore[no-untyped-call]
                )

    def _hook(self, module: nn.Module, hooks: _ModelHooks | _BlockHooks) -> None:
        self._handles.append(module.register_forward_pre_hook(hooks.before, prepend=True))
        self._handles.append(module.register_forward_hook(hooks.after, always_call=True))

    @property
    def closed(self) -> bool:
        return self._streamer is None

    def stats(self) -> dict[str, Any]:
        if self._streamer is not None:
            merged_bytes = self._merge_memory.allocated_bytes
            self._last_stats = {**self._streamer.stats(), "merged_memory_bytes": merged_bytes}
        if self._last_stats is None:
            raise TrashPandaError("this model was closed in a forked child, which has no counters")
        return self._last_stats

    def close(self) -> None:
        """Puts everything back and lets the streamer go; the hooks stay, to say so."""
        if self._streamer is None:
            return
        self.guard.enter()
        try:
            self.put_back_all()
            if not self._streamer.forked:
                self.stats()
            for block in self.blocks:
                block.forget()
                release(block.placeholders)
            self._streamer = None
            self._merge_memory = MergeMemory()
        finally:
            self.guard.leave()

    def remove_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._guards is not None:
            self._guards.remove()

    def place(self, block: StreamedBlock) -> None:
        """Acquires the block and sets its weights; nested calls of one block only count."""
        if self._streamer is None:
            raise ReleasedError(
                "the weights of this model were released by close(); load it again to run it"
            )
        if self._lingering is not None and self._lingering is not block:
            self.end_lingering()
        if block.lease is None:
            lease = self._streamer.acquire(block.index)
            try:
                block.place(lease, self._merge_memory)
            except BaseException:
                lease.release()
                raise
        block.depth += 1

    def put_back(self, block: StreamedBlock) -> None:
        """Undoes one place(); the last one ends the lease, unless the block lingers."""
        if block.depth == 0:
            return
        block.depth -= 1
        if block.depth > 0:
            return
        if block.lingers:
            if self._lingering is not block:
                self.end_lingering()
            self._lingering = block
        else:
            block.take_away(self._merge_memory)

    def end_lingering(self) -> None:
        """Ends the lease of a block that was called in parts."""
        block, self._lingering = self._lingering, None
        if block is not None and block.depth == 0:
            block.take_away(self._merge_memory)

    def put_back_all(self) -> None:
        """Ends what an interrupted forward left in place."""
        self._lingering = None
        for block in self.blocks:
            block.depth = 0
            block.take_away(self._merge_memory)


class _ModelHooks(NotCopyable):
    """Around the model's own forward: claims it for the calling thread."""

    def __init__(self, stream: BlockStream) -> None:
        self.stream = stream

    @outside_of_graphs
    def before(self, module: nn.Module, args: Any) -> None:
        stream = self.stream
        stream.guard.enter(outermost=True)
        if stream.closed:
            stream.guard.leave()
            raise ReleasedError(
                "the weights of this model were released by close(); load it again to run it"
            )
        stream.put_back_all()

    @outside_of_graphs
    def after(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.stream.guard.owns():
            self.stream.end_lingering()
            self.stream.guard.leave()


class _BlockHooks(NotCopyable):
    """Around a block's forward: weights in, weights out."""

    def __init__(self, stream: BlockStream, block: StreamedBlock) -> None:
        self.stream = stream
        self.block = block

    @outside_of_graphs
    def before(self, module: nn.Module, args: Any) -> None:
        stream = self.stream
        stream.guard.enter()
        try:
            stream.place(self.block)
        except BaseException:
            stream.guard.leave()
            raise

    @outside_of_graphs
    def after(self, module: nn.Module, args: Any, output: Any) -> Any:
        # Also called when before() failed, for another thread's forward or a failed read: then
        # there is nothing to undo, or nothing that is ours. After an error, output is None.
        stream = self.stream
        if not stream.guard.owns() or self.block.depth == 0:
            return None
        try:
            if any_requires_grad(output):
                raise TrashPandaError(
                    f"the output of block {self.block.name} requires a gradient, but streamed "
                    "weights can't be trained through, being gone before a backward pass: call "
                    "the model under torch.no_grad() or torch.inference_mode()"
                )
            return without_lent_memory(output, self.block.spans)
        finally:
            stream.put_back(self.block)
            stream.guard.leave()


def stream_of(model: nn.Module) -> BlockStream | None:
    """The stream whose hooks the model has, if any."""
    for hook in model._forward_pre_hooks.values():
        owner = getattr(hook, "__self__", None)
        if isinstance(owner, _ModelHooks):
            return owner.stream
    return None
