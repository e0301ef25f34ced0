"""Puts a pack into a model: all that can fail first, then the changes."""

from __future__ import annotations

import functools
import itertools
import os
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from . import _native
from ._bindings import Binding, Block, Match, Merged, same_bytes
from ._buffers import Attribute, rebuild_attributes, rebuild_buffers, unregistered
from ._dtypes import DtypeRule, compute_dtype_name, torch_dtype
from ._environment import flag_from_environment
from ._errors import TrashPandaError
from ._gpu import Place, free_cached_memory
from ._hooks import BlockStream, stream_of
from ._keys import KeyMap
from ._match import match_pack
from ._offloaded import Offloaded
from ._pack import Pack, StoredPlan
from ._placeholder import make_placeholder
from ._plan import Plan
from ._profile import RunProfile
from ._streamed import StreamedBlock, StreamedMerge
from ._targets import Target, collect_targets

_run_numbers = itertools.count(1)


def _run_log() -> Path | str:
    """Where the run log of this model goes: TRASH_PANDA_LOG, with a number from the second on."""
    path = os.environ.get("TRASH_PANDA_LOG")
    if not path:
        return ""
    number = next(_run_numbers)
    log = Path(path)
    return log if number == 1 else log.with_name(f"{log.stem}.{number}{log.suffix}")


@dataclass
class Prepared:
    """A model and a pack that go together. Nothing of the model has been changed yet."""

    model: nn.Module
    pack: Pack
    match: Match
    buffers: list[tuple[Target, Tensor]]  # That no checkpoint holds, with their values.
    attributes: list[tuple[Attribute, Tensor]]
    dtypes: dict[str, str]  # Safetensors' names by stored tensor.
    compute: str | None
    tiers: list[str]
    engine_plan: str | None  # Text of the plan to follow; None: the one in the pack.
    place: Place
    verify: str
    lookahead_bytes: int | None
    plan: Plan

    def open(self, memory_group: _native.MemoryGroup | None = None) -> Offloaded:
        """Opens the stream, then changes the model.

        :param memory_group: a limit that others share; blocks of the RAM tier then take their
            memory as they are read.
        """
        earlier = _earlier_stream(self.model)
        run_log = _run_log()
        device, gpu = self.place
        if gpu is not None:
            free_cached_memory(gpu)
        profile = RunProfile(run_log) if flag_from_environment("PROFILE") else None
        log = run_log if profile is None else profile.log
        streamer = self._open_streamer(log, memory_group)
        if earlier is not None:
            earlier.remove_hooks()
        # A run log tells of each use, and a pipeline drops blocks that were used for the last time.
        keep = streamer.all_resident and not log and memory_group is None
        stream = BlockStream(streamer, self.place, keep=keep)
        if profile is not None:
            stream.show_profile = weakref.finalize(stream, profile.finish, streamer)
        blocks = [(block, self._streamed(block)) for block in self.match.blocks]
        dtype = None if self.compute is None else torch_dtype(self.compute)
        stream.install(self.model, blocks, dtype)
        set_base = functools.partial(_set_base, self.match, device)
        base = set_base(streamer.base())
        self._set_missing()
        for target, buffer in self.buffers:
            for place in target.places:
                place.put(buffer.to(device))
        for attribute, tensor in self.attributes:
            attribute.put(tensor.to(device))
        self.model.requires_grad_(False)
        self.model.eval()
        return Offloaded(
            self.model,
            stream,
            base,
            set_base=set_base,
            device=device,
            dtype=dtype,
            plan=self.plan,
            unexpected=self.match.unexpected,
            device_map=self._device_map(),
            run_log=run_log,
        )

    def _open_streamer(
        self, run_log: Path | str, memory_group: _native.MemoryGroup | None
    ) -> _native.Streamer:
        return _native.Streamer.open(
            self.pack.path,
            compute_dtype=self.compute,
            dtype_overrides=self.dtypes,
            verify=self.verify,
            lookahead_bytes=self.lookahead_bytes,
            io=os.environ.get("TRASH_PANDA_IO") or "auto",
            run_log=run_log,
            memory_group=memory_group,
            plan=self.engine_plan,
            is_packed=self.pack.is_packed,
            gpu=self.place.gpu,
        )

    def _streamed(self, block: Block) -> StreamedBlock:
        placeholders = [
            _placeholder(
                binding, torch_dtype(self.dtypes[binding.stored.name]), self.place.device, block
            )
            for binding in block.bindings
        ]
        merges = [self._streamed_merge(merged, block) for merged in block.merged]
        return StreamedBlock(block, placeholders, merges)

    def _streamed_merge(self, merged: Merged, block: Block) -> StreamedMerge:
        outputs = merged.merge.outputs(
            [(source.shape, torch_dtype(self.dtypes[source.name])) for source in merged.sources]
        )
        placeholders = {
            name: _placeholder(binding, outputs[name].dtype, self.place.device, block)
            for name, binding in merged.bindings.items()
        }
        return StreamedMerge(merged, outputs, placeholders)

    def _set_missing(self) -> None:
        """Replaces the parameters that stay on the meta device, so that none computes with them."""
        for target in self.match.missing:
            if target.tensor.is_meta and not target.is_buffer:
                placeholder = make_placeholder(
                    target.tensor.shape,
                    target.tensor.dtype,
                    is_buffer=False,
                    tensor_name=target.names[0],
                    state="missing",
                    device=self.place.device,
                )
                for place in target.places:
                    place.put(placeholder)

    def _device_map(self) -> dict[str, str]:
        """Where the model's parts are, as accelerate says it: a device, "cpu" or "disk".

        What lies outside of blocks comes first: whoever asks for the model's device takes that.
        """
        merged = (b for each in self.match.base_merged for b in each.bindings.values())
        base: list[Binding] = [*self.match.base, *merged]
        device = str(self.place.device)
        # A parameter of the model itself goes by its own name: "" would stand for all of it.
        names = [binding.names[0] for binding in base]
        places = {name.rpartition(".")[0] or name: device for name in names}
        paths = {id(module): path for path, module in self.model.named_modules()}
        waiting = {"gpu": device, "ram": "cpu", "disk": "disk"}
        for block in self.match.blocks:
            for module in block.triggers:
                places[paths[id(module)]] = waiting[self.tiers[block.index]]
        return places


def prepare(
    model: nn.Module,
    pack: Pack,
    *,
    other_plan: StoredPlan | None,
    place: Place,
    compute_dtype: str | torch.dtype,
    strict: bool,
    ignore_missing: Iterable[str],
    verify: str,
    lookahead_bytes: int | None,
    key_map: KeyMap | None,
    plan: Plan,
) -> Prepared:
    """Matches the two: all that can fail but reading. See load()."""
    compute = compute_dtype_name(compute_dtype)
    _earlier_stream(model)
    _tie(model)
    targets = collect_targets(model)
    match = match_pack(
        model, pack, targets, strict=strict, ignore_missing=ignore_missing, key_map=key_map
    )
    lacking = [
        target
        for target in (*(t for t in targets if not t.persistent), *match.missing)
        if target.is_buffer and target.tensor.is_meta
    ]
    buffers = rebuild_buffers(model, lacking)
    attributes = unregistered(model)
    tensors = rebuild_attributes(model, attributes)
    return Prepared(
        model=model,
        pack=pack,
        match=match,
        buffers=list(zip(lacking, buffers, strict=True)),
        attributes=list(zip(attributes, tensors, strict=True)),
        dtypes=_dtypes_wanted(model, match, compute),
        compute=compute,
        tiers=pack.tiers(other_plan),
        engine_plan=other_plan.text if other_plan else None if pack.is_packed else pack.plan.text,
        place=place,
        verify=verify,
        lookahead_bytes=lookahead_bytes,
        plan=plan,
    )


def _earlier_stream(model: nn.Module) -> BlockStream | None:
    earlier = stream_of(model)
    if earlier is not None and not earlier.closed:
        raise TrashPandaError(
            f"this {type(model).__name__} already streams from a pack; close() that first"
        )
    return earlier


def _tie(model: nn.Module) -> None:
    """Lets a transformers model tie what its config says is tied; without effect on others."""
    tie_weights: Any = getattr(model, "tie_weights", None)
    if callable(tie_weights):
        tie_weights()


def _dtypes_wanted(model: nn.Module, match: Match, compute: str | None) -> dict[str, str]:
    rule = DtypeRule(model, compute)
    dtypes = {}
    for stored, binding in match.stored():
        wanted = rule.wanted(stored, binding.names, binding.is_buffer, binding.placeholder.dtype)
        torch_dtype(wanted)  # Refuses what torch lacks, while the model is still untouched.
        dtypes[stored.name] = wanted
    return dtypes


def _placeholder(
    binding: Binding, dtype: torch.dtype, device: torch.device, block: Block | None = None
) -> Tensor:
    """What a place holds while its weight is away; outside of blocks: once it was released."""
    return make_placeholder(
        binding.placeholder.shape,
        dtype,
        is_buffer=binding.is_buffer,
        tensor_name=binding.names[0],
        block_name=block.name if block else "",
        state="streamed" if block else "released",
        device=device,
    )


def _set_base(
    match: Match, device: torch.device, stored: Sequence[tuple[str, _native.Array]]
) -> list[tuple[Binding, Tensor]]:
    """Sets the tensors outside of blocks; returns them with what to put there on close().

    A checkpoint may store a tied weight under both of its names. When the two are equal, they are
    one again in the model.
    """
    arrays = dict(stored)
    base: list[tuple[Binding, Tensor]] = []
    values: dict[int, list[Tensor]] = {}  # By the model's own tensor: more than one if untied.
    for binding in match.base:
        with torch.inference_mode(False):
            value: Tensor = from_dlpack(arrays[binding.stored.name])
            if not binding.is_buffer:
                value = nn.Parameter(value, requires_grad=False)
        tied = values.setdefault(id(binding.placeholder), [])
        value = next((other for other in tied if same_bytes(other, value)), value)
        tied.append(value)
        binding.put(value)
        base.append((binding, _placeholder(binding, value.dtype, device)))
    for merged in match.base_merged:
        base += _set_merged(merged, arrays, device)
    return base


def _set_merged(
    merged: Merged, arrays: dict[str, _native.Array], device: torch.device
) -> list[tuple[Binding, Tensor]]:
    made = merged.merge.compute([from_dlpack(arrays[s.name]) for s in merged.sources])
    base = []
    for name, binding in merged.bindings.items():
        with torch.inference_mode(False):
            value = made[name].clone()
            if not binding.is_buffer:
                value = nn.Parameter(value, requires_grad=False)
        binding.put(value)
        base.append((binding, _placeholder(binding, value.dtype, device)))
    return base
