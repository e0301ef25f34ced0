"""What load() returns."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import ReleasedError, TrashPandaError
from ._handle import OffloadHandle
from ._plan import Plan
from ._program import run_for_text

_log = logging.getLogger("trash_panda")

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from . import _native
    from ._bindings import Binding
    from ._hooks import BlockStream


class Offloaded:
    """A model whose blocks stream from a pack.

    `model` is the very object that was given to load(); call it as ever. `device` is where it
    computes, `dtype` the dtype of its weights (None: as they are stored), `plan` the plan that was
    loaded, `device_map` where its parts are (a device, "cpu" or "disk", as accelerate has it; also
    the model's `hf_device_map`), `handle` what takes the hooks off again. Usable as a context
    manager that closes at the end.
    """

    def __init__(
        self,
        model: nn.Module,
        stream: BlockStream,
        base: list[tuple[Binding, Tensor]],
        *,
        set_base: Callable[[Sequence[tuple[str, _native.Array]]], list[tuple[Binding, Tensor]]],
        device: torch.device,
        dtype: torch.dtype | None,
        plan: Plan,
        unexpected: list[str],
        device_map: dict[str, str],
        run_log: Path | str,
    ) -> None:
        from ._lora_set import LoraSet

        self.model: Any = model  # Of the caller's class, whose methods type checkers can't know.
        self.device = device
        self.dtype = dtype
        self.plan = plan
        self.unexpected = unexpected  # Names in the pack that the model does not use.
        self.handle = OffloadHandle([self.remove])
        self._stream = stream
        stream.owner = self
        self._base = base
        self._set_base = set_base
        self._changed_buffers: list[tuple[Binding, Tensor]] = []  # While the GPU is given back.
        self._run_log = run_log
        self.device_map = device_map
        if _knows_device_maps(model):
            # By this, transformers does not compile generate() as a whole.
            model.hf_device_map = device_map  # type: ignore[assignment]
        self._loras = LoraSet(model, stream)

    def stats(self) -> dict[str, Any]:
        """Counters since loading; sizes in bytes, times in nanoseconds.

        `read_bytes_base`, `_ram`, `_disk` are totals by tier, `pass_read_bytes_ram`, `_disk` those
        of the last complete pass; `weight_memory_bytes` is what is booked for weights now,
        `weight_memory_bytes_max` the most that ever was; `merged_memory_bytes` is the memory in
        which a block's stacked, joined and adapted tensors are made, beside that,
        `adapter_memory_bytes` what adapters take; `device_memory_bytes` what is taken of a GPU for
        weights; `demoted_block_count` blocks of the RAM tier are read every pass for want of
        memory, and `promoted_block_count` blocks that were, or that are of the disk tier, stay in
        `promoted_bytes` of RAM now; `device_demoted_block_count` blocks of tier gpu wait in RAM for
        want of the GPU's memory; `mispredict_count` counts blocks that came out of the expected
        order; `wait_ns` is the time that forwards waited for reads. They stay readable after
        close().
        """
        return {**self._stream.stats(), "adapter_memory_bytes": self._loras.size_bytes}

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes what the passes so far read, waited for and computed, for ui.perfetto.dev.

        Passes count when the next one has begun, or the model was closed. Raises TrashPandaError
        when TRASH_PANDA_LOG was not set as the model was loaded: that is where it comes from.
        """
        if not self._run_log:
            raise TrashPandaError(
                "nothing was logged of this model: set TRASH_PANDA_LOG=run.jsonl before loading it"
            )
        log = Path(self._run_log)
        run_for_text(["report", log, "--to", "perfetto", "-o", Path(path), "--force"])

    def add_lora(
        self,
        source: str | os.PathLike[str] | Mapping[str, Tensor],
        *,
        name: str = "default",
        scale: float = 1.0,
        mode: str = "merge",
    ) -> None:
        """Applies a low-rank adapter from the next forward on.

        Several add up. All are gone after close().

        :param source: a safetensors file as PEFT, diffusers or kohya's scripts write it, a folder
            of PEFT's, or tensors by such names. Parts for other models of a pipeline are left out.
        :param scale: of the whole adapter, beside its own alpha / rank.
        :param mode: "merge" adds it to each weight as the block comes in, in fp32 and rounded once:
            what a merged checkpoint computes, at the cost of memory for the weights of one block
            and a pass over them for each use. "side" computes it beside the layer, which is cheaper
            for few tokens, as PEFT does without merging.
        :raises CheckpointError: can't be read, or is for another model.
        :raises UnsupportedFormatError: another kind of adapter, or a layer that can't have one.
        :raises TrashPandaError: there is one of this name, or a forward is running.
        """
        self._refuse_closed()
        self._loras.add(source, name, scale, mode)

    def set_lora(self, name: str, scale: float) -> None:
        """Changes the scale of an adapter; 0 turns it off."""
        self._refuse_closed()
        self._loras.set_scale(name, scale)

    def remove_lora(self, name: str = "default") -> None:
        """Removes an adapter. Weights are then, bit for bit, what they were without it."""
        self._refuse_closed()
        self._loras.remove(name)

    def release_gpu(self) -> None:
        """Gives back what the model's weights take of a GPU, until restore_gpu().

        What waits in RAM stays, so that coming back is quick; to give that back too, close() the
        model. Tensors outside of blocks that someone else keeps hold nothing any more. Calling the
        model meanwhile raises ReleasedError. On the CPU this does nothing but log it. Raises
        TrashPandaError while another thread is in the model's forward.
        """
        self._refuse_closed()
        gpu = self._stream.gpu
        if gpu is None:
            name = type(self.model).__name__
            _log.info("%s computes on the CPU and takes no memory of a GPU", name)
            return
        if self._stream.is_gpu_released:
            return
        with self._stream.paused():
            self._loras.leave_base()
            self._changed_buffers = self._copy_buffers()
            self._put_placeholders()
            self._stream.release_gpu()
        from ._gpu import free_cached_memory

        free_cached_memory(gpu)

    def restore_gpu(self) -> None:
        """Undoes release_gpu(); on the CPU there is nothing to undo.

        :raises DoesNotFitError: the GPU has not as much memory left; it can be tried again.
        """
        self._refuse_closed()
        gpu = self._stream.gpu
        if gpu is None or not self._stream.is_gpu_released:
            return
        from ._gpu import free_cached_memory

        free_cached_memory(gpu)
        with self._stream.paused():
            try:
                self._base = self._set_base(self._stream.restore_gpu())
                self._put_changed_buffers()
                self._stream.is_gpu_released = False
                self._loras.merge_all()
            except BaseException:
                self._loras.leave_base()
                self._put_placeholders()
                self._stream.release_gpu()
                raise

    @property
    def loras(self) -> dict[str, float]:
        """The adapters' scales by their names."""
        return self._loras.scales

    def close(self) -> None:
        """Releases the memory of all weights. Calling the model then raises ReleasedError.

        Raises TrashPandaError while another thread is in the model's forward; and, once all is
        released, CheckpointError if a GPU found damaged code in what it decoded last. A second call
        does nothing. The model can be loaded again.
        """
        if self._stream.closed:
            return
        try:
            with self._stream.paused():
                self._loras.clear()
                self._stream.close()
        finally:
            if self._stream.closed:
                self._put_placeholders()
                self._base.clear()

    def _copy_buffers(self) -> list[tuple[Binding, Tensor]]:
        """Buffers outside of blocks in memory of the host: a forward may have changed them."""
        buffers = [binding for binding, _ in self._base if binding.is_buffer]
        return [(buffer, buffer.get().to("cpu", copy=True)) for buffer in buffers]

    def _put_changed_buffers(self) -> None:
        """Sets those that are not as they were loaded any more."""
        from ._bindings import same_bytes

        for buffer, kept in self._changed_buffers:
            value = kept.to(self.device)
            if not same_bytes(buffer.get(), value):
                buffer.put(value)

    def _put_placeholders(self) -> None:
        """Where tensors outside of blocks were."""
        for binding, placeholder in self._base:
            binding.put(placeholder)

    @property
    def stream(self) -> BlockStream:
        """For the rest of this package."""
        return self._stream

    def _refuse_closed(self) -> None:
        if self._stream.closed:
            raise ReleasedError("the weights of this model were released by close()")

    @property
    def closed(self) -> bool:
        """Whether the weights were released."""
        return self._stream.closed

    def remove(self) -> None:
        """Releases the weights and takes the hooks off, so that others can fill the model."""
        try:
            self.close()
        finally:
            if self._stream.closed:
                self._stream.remove_hooks()
                self.model.__dict__.pop("hf_device_map", None)

    def __enter__(self) -> Offloaded:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._stream.closed else f"{len(self._stream.blocks)} streamed blocks"
        return f"<Offloaded {type(self.model).__name__} on {self.device}, {state}>"


def _knows_device_maps(model: nn.Module) -> bool:
    """Whether transformers takes a device map: for encoders it asks accelerate's hooks then."""
    has_encoder = bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))
    return not has_encoder or importlib.util.find_spec("accelerate") is not None
