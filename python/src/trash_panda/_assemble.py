"""Puts a pack into a model: all that can fail first, then the changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from . import _native
from ._buffers import rebuild_buffers
from ._dtypes import DtypeRule, compute_dtype_name, torch_dtype
from ._errors import TrashPandaError
from ._hooks import BlockStream, StreamedBlock, stream_of
from ._match import Binding, Block, Match, match_pack
from ._offloaded import Offloaded
from ._pack import Pack
from ._placeholder import make_placeholder
from ._targets import collect_targets


def assemble(
    model: nn.Module,
    pack: Pack,
    *,
    tiers: Sequence[str] | None,
    device: torch.device,
    compute_dtype: str | torch.dtype,
    strict: bool,
    ignore_missing: Iterable[str],
    verify: str,
    lookahead_bytes: int | None,
) -> Offloaded:
    """Matches, opens the stream, then changes the model. See load()."""
    compute = compute_dtype_name(compute_dtype)
    earlier = _earlier_stream(model)
    _tie(model)
    targets = collect_targets(model)
    match = match_pack(model, pack, targets, strict=strict, ignore_missing=ignore_missing)
    lacking = [
        target
        for target in (*(t for t in targets if not t.persistent), *match.missing)
        if target.is_buffer and target.tensor.is_meta
    ]
    buffers = rebuild_buffers(model, lacking)
    dtypes = _dtypes_wanted(model, match, compute)
    streamer = _native.Streamer.open(
        pack.path,
        compute_dtype=compute,
        dtype_overrides=dtypes,
        verify=verify,
        lookahead_bytes=lookahead_bytes,
        tiers=tiers,
    )
    if earlier is not None:
        earlier.remove_hooks()
    stream = BlockStream(streamer)
    stream.install(
        model,
        [
            (block, StreamedBlock(block, [_placeholder(b, dtypes, block) for b in block.bindings]))
            for block in match.blocks
        ],
    )
    base = _set_base(match, streamer, dtypes)
    for target, buffer in zip(lacking, buffers, strict=True):
        for place in target.places:
            place.put(buffer)
    model.requires_grad_(False)
    model.eval()
    return Offloaded(
        model,
        stream,
        base,
        device=device,
        dtype=None if compute is None else torch_dtype(compute),
        unexpected=match.unexpected,
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
    for binding in match.bindings():
        wanted = rule.wanted(
            binding.stored, binding.names, binding.is_buffer, binding.placeholder.dtype
        )
        torch_dtype(wanted)  # Refuses what torch lacks, while the model is still untouched.
        dtypes[binding.stored.name] = wanted
    return dtypes


def _placeholder(binding: Binding, dtypes: dict[str, str], block: Block | None = None) -> Tensor:
    """What a place holds while its weight is away; outside of blocks: once it was released."""
    return make_placeholder(
        binding.placeholder.shape,
        torch_dtype(dtypes[binding.stored.name]),
        is_buffer=binding.is_buffer,
        tensor_name=binding.names[0],
        block_name=block.name if block else "",
        is_released=block is None,
    )


def _set_base(
    match: Match, streamer: _native.Streamer, dtypes: dict[str, str]
) -> list[tuple[Binding, Tensor]]:
    """Sets the tensors outside of blocks; returns them with what to put there on close().

    A checkpoint may store a tied weight under both of its names. When the two are equal, they are
    one again in the model.
    """
    arrays = dict(streamer.base())
    base = []
    values: dict[int, list[Tensor]] = {}  # By the model's own tensor: more than one if untied.
    for binding in match.base:
        with torch.inference_mode(False):
            value = from_dlpack(arrays[binding.stored.name])
            if not binding.is_buffer:
                value = nn.Parameter(value, requires_grad=False)
        tied = values.setdefault(id(binding.placeholder), [])
        value = next((other for other in tied if _same_bytes(other, value)), value)
        tied.append(value)
        binding.put(value)
        base.append((binding, _placeholder(binding, dtypes)))
    return base


def _same_bytes(left: Tensor, right: Tensor) -> bool:
    with torch.no_grad():
        return left.dtype == right.dtype and torch.equal(
            left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8)
        )
