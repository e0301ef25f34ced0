"""Forward hooks that put a block's weights in place for the time of its forward."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from . import _native
from ._bindings import Block
from ._errors import ReleasedError, TrashPandaError
from ._forward_guard import ForwardGuard
from ._gpu import Place, current_stream
from ._graphs import outside_of_graphs
from ._guards import Guards, NotCopyable, refuse_state_dict
from ._merge import MergeMemory
from ._outputs import GradientNeeded
from ._placeholder import release
from ._streamed import StreamedBlock

if TYPE_CHECKING:
    from ._offloaded import Offloaded
# All that there are, to know how much of the process's memory is weights.
streams: weakref.WeakSet[BlockStream] = weakref.WeakSet()


class BlockStream:
    """The hooks of one model. Holds the streamer, not the model: it lives as long as its hooks.

    :param place: where the model computes, and the streamer's tensors are.
    :param keep: leave weights in place after their block's first use, and take the hooks of blocks
        off once all are there. Only for a streamer whose blocks are all resident, and none of which
        will be dropped.
    """

    def __init__(self, streamer: _native.Streamer, place: Place, *, keep: bool = False) -> None:
        self.guard = ForwardGuard()
        self.device, self.gpu = place
        self.is_gpu_released = False
        self.owner: Offloaded | None = None  # Who gives back all there is on a GPU.
        self.blocks: list[StreamedBlock] = []
        self._streamer: _native.Streamer | None = streamer
        self._last_stats: dict[str, Any] | None = None
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._lingering: StreamedBlock | None = None
        self._merge_memory = MergeMemory(self.device)
        self._guards: Guards | None = None
        self._keep = keep
        self._kept_passes = 0  # That the streamer was not asked for anything in.
        self._hooked: list[tuple[nn.Module, _BlockHooks]] = []
        self._block_handles: list[torch.utils.hooks.RemovableHandle] = []
        # Of a pipeline: how many forwards are to come, and what to call when memory was given back.
        self.forwards_left: int | None = None
        self.on_freed: Callable[[], object] | None = None
        self.promotes = False  # Before each forward but the last.
        self.promoted_bytes = 0
        self.not_read_yet: dict[int, int] = {}  # Bytes of RAM blocks, by index.
        streams.add(self)
        # Shows the run's profile, once: when this is closed, goes, or the program ends.
        self.show_profile: Callable[[], object] | None = None

    def install(
        self,
        model: nn.Module,
        blocks: Sequence[tuple[Block, StreamedBlock]],
        dtype: torch.dtype | None,
    ) -> None:
        """Hooks the model and the modules of its blocks. `dtype` is what it computes in."""
        self.blocks = [streamed for _, streamed in blocks]
        for streamed in self.blocks:
            streamed.let_stay(self._keep)
        bindings = [binding for block, _ in blocks for binding in block.all_bindings()]
        names = [name for each in bindings for name in each.names]
        self._guards = Guards(model, names, dtype, self.device, self.move)
        self._handles += _hook(model, _ModelHooks(self))
        for block, streamed in blocks:
            hooks = _BlockHooks(self, streamed)
            for module in block.triggers:
                self._hooked.append((module, hooks))
                self._handles.append(
                    module.register_state_dict_pre_hook(refuse_state_dict)  # type: ignore[no-untyped-call]
                )
        self._hook_blocks()

    def _hook_blocks(self) -> None:
        if not self._block_handles:
            for module, hooks in self._hooked:
                self._block_handles += _hook(module, hooks)

    def _unhook_blocks(self) -> None:
        for handle in self._block_handles:
            handle.remove()
        self._block_handles.clear()

    @property
    def closed(self) -> bool:
        return self._streamer is None

    def stats(self) -> dict[str, Any]:
        if self._streamer is not None:
            merged_bytes = self._merge_memory.allocated_bytes
            stats: dict[str, Any] = {**self._streamer.stats(), "merged_memory_bytes": merged_bytes}
            if self._kept_passes > 0:
                stats["pass_count"] += self._kept_passes
                stats["pass_read_bytes_ram"] = stats["pass_read_bytes_disk"] = 0
            self._last_stats = stats
        if self._last_stats is None:
            raise TrashPandaError("this model was closed in a forked child, which has no counters")
        return self._last_stats

    def kept_bytes(self) -> int:
        """Memory of the weights that were read to stay, and in which some are made."""
        if self._streamer is None or self._streamer.forked:
            return 0
        stats = self.stats()
        read_bytes: int = stats["read_bytes_base"] + stats["read_bytes_ram"]
        kept: int = min(read_bytes, stats["weight_memory_bytes"]) + stats["merged_memory_bytes"]
        return kept

    def claimed_bytes(self) -> int:
        """What RAM blocks will take that were not used yet. Any thread may ask."""
        return sum(list(self.not_read_yet.values()))

    def preload(self, index: int) -> None:
        """Reads a block of the RAM tier now. Raises DoesNotFitError while there is no memory."""
        if self._streamer is not None:
            self._streamer.preload(index)
            self.not_read_yet.pop(index, None)

    def promote(self) -> None:
        """Lets blocks that stream stay, as many as there is memory for now."""
        if self._streamer is not None:
            self.promoted_bytes += self._streamer.promote()

    def close(self) -> None:
        """Puts everything back and lets the streamer go; the hooks stay, to say so.

        Raises what a GPU has found damaged, after that.
        """
        if self._streamer is None:
            return
        with self.paused():
            streamer = self._streamer
            if not streamer.forked:
                self.stats()
            for block in self.blocks:
                block.forget()
                release(block.placeholders)
            self._streamer = None
            if self.show_profile is not None:
                self.show_profile()
            self._merge_memory = MergeMemory(self.device)
            if self.gpu is not None and not streamer.forked:
                streamer.check_decoded()

    def move(self, device: torch.device) -> bool:
        """What to() of the model does: "cpu" gives its memory of the GPU back, that GPU takes it.

        :return: whether that was all there is to do.
        """
        if self.owner is None or self.closed or self.gpu is None:
            return False
        if device.type == "cpu":
            self.owner.release_gpu()
            return True
        if device == self.device and self.is_gpu_released:
            self.owner.restore_gpu()
        return False

    def release_gpu(self) -> None:
        """Gives back the memory of the GPU, until restore_gpu(). The stream is paused."""
        assert self._streamer is not None
        for block in self.blocks:
            block.forget()
        self._merge_memory = MergeMemory(self.device)
        self._streamer.release_device()
        self.is_gpu_released = True

    def restore_gpu(self) -> list[tuple[str, _native.Array]]:
        """Takes the memory again. The stream is paused; `is_gpu_released` is the caller's.

        :return: the tensors outside of blocks, anew.
        """
        assert self._streamer is not None
        self._streamer.restore_device()
        return self._streamer.base()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No forward runs meanwhile, and no weights are in place.

        Raises TrashPandaError while another thread is in the model's forward.
        """
        self.guard.enter()
        try:
            self._hook_blocks()
            self.put_back_all(kept=True)
            yield
        finally:
            self.guard.leave()

    def remove_hooks(self) -> None:
        self._unhook_blocks()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if self._guards is not None:
            self._guards.remove()

    def place(self, block: StreamedBlock) -> None:
        """Acquires the block and sets its weights; nested calls of one block only count."""
        if self._lingering is not None and self._lingering is not block:
            self.end_lingering()
        if block.lease is None:
            self._acquire(block)
        elif block.stays and block.depth == 0 and block.index == 0:
            self._kept_passes += 1
        block.depth += 1

    def refuse_released(self) -> None:
        """Raises ReleasedError where there is nothing to compute with."""
        if self.closed:
            raise ReleasedError(
                "the weights of this model were released by close(); load it again to run it"
            )
        if self.is_gpu_released:
            raise ReleasedError(
                "this model gave its memory of the GPU back; call restore_gpu() to run it"
            )

    def _acquire(self, block: StreamedBlock) -> None:
        self.refuse_released()
        assert self._streamer is not None
        stream = 0 if self.gpu is None else current_stream(self.gpu)
        lease = self._streamer.acquire(block.index, stream)
        if self.not_read_yet:
            self.not_read_yet.pop(block.index, None)
        try:
            block.place(lease, self._merge_memory)
        except BaseException:
            lease.release()
            raise

    def put_back(self, block: StreamedBlock) -> None:
        """Undoes one place(); the last one ends the lease, unless the block lingers."""
        if block.depth == 0:
            return
        block.depth -= 1
        if block.depth > 0 or block.stays:
            return
        if block.lingers:
            if self._lingering is not block:
                self.end_lingering()
            self._lingering = block
        else:
            self._take_away(block)

    def _take_away(self, block: StreamedBlock) -> None:
        block.take_away(self._merge_memory)
        if self.forwards_left == 0 and self._streamer is not None:
            self._streamer.drop(block.index)
            if self.on_freed is not None:
                self.on_freed()

    def end_lingering(self) -> None:
        """Ends the lease of a block that was called in parts."""
        block, self._lingering = self._lingering, None
        if block is not None and block.depth == 0:
            self._take_away(block)

    def begin_forward(self) -> None:
        """Of the model, in the thread that has entered."""
        if self._hooked and not self._block_handles:
            self._kept_passes += 1
            return
        self.put_back_all()
        if self._keep and all(block.stays and block.lease is not None for block in self.blocks):
            self._unhook_blocks()
            self._kept_passes += 1
        if self.forwards_left:
            self.forwards_left -= 1
        if self.promotes and self.forwards_left != 0:
            self.promote()

    def put_back_all(self, *, kept: bool = False) -> None:
        """Ends what an interrupted forward left in place; `kept`: also what may stay there."""
        self._lingering = None
        for block in self.blocks:
            block.depth = 0
            if kept or not block.stays:
                block.take_away(self._merge_memory)


class _ModelHooks(NotCopyable):
    """Around the model's own forward: claims it for the calling thread."""

    def __init__(self, stream: BlockStream) -> None:
        self.stream = stream

    @outside_of_graphs
    def before(self, module: nn.Module, args: Any) -> None:
        stream = self.stream
        stream.guard.enter(outermost=True)
        try:
            stream.refuse_released()
        except ReleasedError:
            stream.guard.leave()
            raise
        stream.begin_forward()

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
        if self.block.stays:  # So what it hands back may need its weights.
            self.block.depth -= 1
            stream.guard.leave()
            return None
        try:
            return self.block.lent.without(output)
        except GradientNeeded:
            raise TrashPandaError(
                f"the output of block {self.block.name} requires a gradient, but streamed weights "
                "can't be trained through, being gone before a backward pass: call the model under "
                "torch.no_grad() or torch.inference_mode()"
            ) from None
        finally:
            stream.put_back(self.block)
            stream.guard.leave()


def _hook(
    module: nn.Module, hooks: _ModelHooks | _BlockHooks
) -> list[torch.utils.hooks.RemovableHandle]:
    return [
        module.register_forward_pre_hook(hooks.before, prepend=True),
        module.register_forward_hook(hooks.after, always_call=True),
    ]


def stream_of(model: nn.Module) -> BlockStream | None:
    """The stream whose hooks the model has, if any."""
    for hook in model._forward_pre_hooks.values():
        owner = getattr(hook, "__self__", None)
        if isinstance(owner, _ModelHooks):
            return owner.stream
    return None
