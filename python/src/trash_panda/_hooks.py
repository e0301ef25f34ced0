"""Forward hooks that put a block's weights in place for the time of its forward."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from . import _native
from ._errors import ReleasedError, TrashPandaError
from ._guards import Guards, NotCopyable, refuse_state_dict
from ._match import Binding, Block
from ._outputs import any_requires_grad, without_lent_memory
from ._placeholder import release

# A block meets as many sets of addresses as there are slots; more than this means that they do
# not repeat, and remembering them would only grow.
_PLACEMENTS_MAX = 32


class ForwardGuard:
    """Lets one thread at a time run the model, and that one as deep as it likes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: threading.Thread | None = None
        self._depth = 0

    def enter(self, *, outermost: bool = False) -> None:
        """Raises TrashPandaError when another thread is in a forward.

        `outermost` says that nothing of this thread can still be running: what an interrupt
        (KeyboardInterrupt skips hooks) left entered is forgotten.
        """
        me = threading.current_thread()
        with self._lock:
            if self._owner is not None and self._owner is not me and self._owner.is_alive():
                raise TrashPandaError(
                    f"this model's forward is running in thread {self._owner.name}; its weights "
                    "stream through memory that two forwards can't share: use one model a thread, "
                    "or a lock (after an interrupted forward, run that thread's model once more)"
                )
            if self._owner is not me or outermost:
                self._owner, self._depth = me, 0
            self._depth += 1

    def leave(self) -> bool:
        """Undoes one enter(). False when this thread has not entered."""
        with self._lock:
            if self._owner is not threading.current_thread() or self._depth == 0:
                return False
            self._depth -= 1
            if self._depth == 0:
                self._owner = None
            return True

    def owns(self) -> bool:
        return self._owner is threading.current_thread()


class StreamedBlock:
    """One block: the places of its weights, and the lease while they are there."""

    def __init__(self, block: Block, placeholders: Sequence[Tensor]) -> None:
        self.index = block.index
        self.name = block.name
        # The parts of such a block are called one after another: its weights stay until another
        # block is called, or the model's forward ends, not to be read once a part.
        self.lingers = block.in_parts
        self.depth = 0
        self.lease: _native.Lease | None = None
        self.placed: list[Tensor] = []
        self.placements: dict[tuple[int, ...], list[Tensor]] = {}
        self.has_buffers = any(binding.is_buffer for binding in block.bindings)
        self._set_bindings(block.bindings, placeholders)
        self.put(self.placeholders)

    def _set_bindings(self, bindings: Sequence[Binding], placeholders: Sequence[Tensor]) -> None:
        self.bindings = list(bindings)
        self.placeholders = list(placeholders)
        # Flat, with the dictionaries themselves: put() runs twice for each block of each pass.
        self._slots = [
            (place.holder(), place.attribute, number)
            for number, binding in enumerate(self.bindings)
            for place in binding.places
        ]

    def put(self, tensors: Sequence[Tensor]) -> None:
        """Sets one tensor a binding, at all of its places."""
        for holder, attribute, number in self._slots:
            holder[attribute] = tensors[number]

    def wrap(self, lease: _native.Lease) -> list[Tensor]:
        """The lease's memory as parameters, one a binding."""
        arrays = dict(zip(lease.names, lease.arrays(), strict=True))
        # Made outside of inference mode, since they are kept for later passes outside of it.
        with torch.inference_mode(False):
            return [
                nn.Parameter(from_dlpack(arrays[b.stored.name]), requires_grad=False)
                for b in self.bindings
            ]

    def keep_buffers(self, lease: _native.Lease) -> None:
        """Gives the block's buffers memory of their own, once: forwards may change them."""
        arrays = dict(zip(lease.names, lease.arrays(), strict=True))
        bindings, placeholders = [], []
        for binding, placeholder in zip(self.bindings, self.placeholders, strict=True):
            if not binding.is_buffer:
                bindings.append(binding)
                placeholders.append(placeholder)
                continue
            with torch.inference_mode(False):
                value = from_dlpack(arrays[binding.stored.name]).clone()
            binding.put(value)
        self._set_bindings(bindings, placeholders)
        self.has_buffers = False


class BlockStream:
    """The hooks of one model. Holds the streamer, not the model: it lives as long as its hooks."""

    def __init__(self, streamer: _native.Streamer) -> None:
        self.guard = ForwardGuard()
        self.blocks: list[StreamedBlock] = []
        self._streamer: _native.Streamer | None = streamer
        self._last_stats: _native.StreamStats | None = None
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._lingering: StreamedBlock | None = None
        self._guards: Guards | None = None

    def install(self, model: nn.Module, blocks: Sequence[tuple[Block, StreamedBlock]]) -> None:
        """Hooks the model and the modules of its blocks."""
        self.blocks = [streamed for _, streamed in blocks]
        bindings = [binding for block, _ in blocks for binding in block.bindings]
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

    def stats(self) -> _native.StreamStats:
        if self._streamer is not None:
            self._last_stats = self._streamer.stats()
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
                block.placements.clear()
                release(block.placeholders)
            self._streamer = None
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
            if block.has_buffers:
                block.keep_buffers(lease)
            key = lease.addresses
            placed = block.placements.get(key)
            if placed is None:
                if len(block.placements) >= _PLACEMENTS_MAX:
                    block.placements.clear()
                placed = block.placements[key] = block.wrap(lease)
            block.put(placed)
            block.lease, block.placed = lease, placed
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
            self._end(block)

    def end_lingering(self) -> None:
        """Ends the lease of a block that was called in parts."""
        block, self._lingering = self._lingering, None
        if block is not None and block.depth == 0:
            self._end(block)

    def put_back_all(self) -> None:
        """Ends what an interrupted forward left in place."""
        self._lingering = None
        for block in self.blocks:
            block.depth = 0
            self._end(block)

    def _end(self, block: StreamedBlock) -> None:
        lease, placed = block.lease, block.placed
        if lease is None:
            return
        block.put(block.placeholders)
        if torch.is_grad_enabled():
            # The output needs no backward pass, but something that the block keeps elsewhere may.
            # The memory is about to hold another block: a new version makes backward refuse.
            torch.autograd.graph.increment_version(placed)
        block.lease, block.placed = None, []
        lease.release()


class _ModelHooks(NotCopyable):
    """Around the model's own forward: claims it for the calling thread."""

    def __init__(self, stream: BlockStream) -> None:
        self.stream = stream

    def before(self, module: nn.Module, args: Any) -> None:
        stream = self.stream
        stream.guard.enter(outermost=True)
        if stream.closed:
            stream.guard.leave()
            raise ReleasedError(
                "the weights of this model were released by close(); load it again to run it"
            )
        stream.put_back_all()

    def after(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.stream.guard.owns():
            self.stream.end_lingering()
            self.stream.guard.leave()


class _BlockHooks(NotCopyable):
    """Around a block's forward: weights in, weights out."""

    def __init__(self, stream: BlockStream, block: StreamedBlock) -> None:
        self.stream = stream
        self.block = block

    def before(self, module: nn.Module, args: Any) -> None:
        stream = self.stream
        stream.guard.enter()
        try:
            stream.place(self.block)
        except BaseException:
            stream.guard.leave()
            raise

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
            return without_lent_memory(output, self.block.placed)
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
