"""load(): a pack into a model. Torch is imported when it is called, not before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from . import _native
from ._environment import check_environment, count_from_environment
from ._errors import IntegrityError, TrashPandaError
from ._offloaded import Offloaded
from ._pack import Pack, StoredPlan
from ._plan import Plan
from ._progress import progress_callback
from ._torch import require_torch

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ._assemble import Prepared
    from ._keys import KeyMap

_MISMATCHES_SHOWN = 3
_LOOKAHEAD_BYTES_MAX = 2**62


def load(
    pack_dir: str | os.PathLike[str],
    model: nn.Module | None = None,
    *,
    plan: Plan | str | os.PathLike[str] | None = None,
    device: str | torch.device | None = None,
    compute_dtype: str | torch.dtype | None = None,
    strict: bool = True,
    ignore_missing: Iterable[str] = (),
    verify: str = "headers",
    lookahead: int | str | None = None,
    progress: bool | Callable[[int, int], None] | None = None,
    key_map: KeyMap | None = None,
) -> Offloaded:
    """Makes `model` run with its weights streaming from a pack.

    The model is best built on the meta device, where it takes no memory. Its blocks get their
    weights for the time of their forward and give them back; tensors outside of blocks are set
    once. The model is put into eval mode and its parameters need no gradient. When anything fails,
    the model is as it was.

    :param pack_dir: what `trash-panda repack` wrote.
    :param model: the model, of the class and config that the checkpoint belongs to.
    :param plan: a plan for the same checkpoint, or its file; its tiers, dtype and lookahead are
        used instead of those that the pack was laid out for.
    :param device: where to compute: "cpu" or an NVIDIA GPU ("cuda", "cuda:1"); default: the GPU
        that torch computes on, else the CPU.
    :param compute_dtype: "bf16", "fp16", "fp32", "keep" or a torch dtype; default: the plan's.
        Buffers that the file stores keep their own dtype.
    :param strict: False: parameters that the pack lacks stay as they are, with a warning.
    :param ignore_missing: globs of names that the pack may lack.
    :param verify: "full" reads the whole pack once and compares checksums, and again whatever is
        read later; "headers" checks manifest, sizes and shard headers.
    :param lookahead: how far to read ahead: a number of blocks, or a size such as "512MB";
        default: TRASH_PANDA_LOOKAHEAD, else the plan's.
    :param progress: of verify="full": False for none, or a function of (done, total) bytes;
        default: a bar on a terminal, when tqdm is installed.
    :param key_map: what names of the pack are called in the model: a dictionary of those that
        differ, or a function; None for a name leaves that tensor out. What transformers renames,
        stacks and joins when it loads such a checkpoint itself needs none.
    :raises MissingTensorsError: the pack lacks parameters of the model.
    :raises CheckpointError: pack missing or damaged, or shapes differ from the model's.
    :raises IntegrityError: bytes differ from their checksum.
    :raises PlanError: the plan can't be read; StalePlanError: it is for another checkpoint.
    """
    return prepare_load(
        pack_dir,
        model,
        plan=plan,
        device=device,
        compute_dtype=compute_dtype,
        strict=strict,
        ignore_missing=ignore_missing,
        verify=verify,
        lookahead=lookahead,
        progress=progress,
        key_map=key_map,
    ).open()


def prepare_load(
    pack_dir: str | os.PathLike[str] | Pack,
    model: nn.Module | None,
    *,
    plan: Plan | str | os.PathLike[str] | None = None,
    device: str | torch.device | None = None,
    compute_dtype: str | torch.dtype | None = None,
    strict: bool = True,
    ignore_missing: Iterable[str] = (),
    verify: str = "headers",
    lookahead: int | str | None = None,
    progress: bool | Callable[[int, int], None] | None = None,
    key_map: KeyMap | None = None,
) -> Prepared:
    """What load() does before it takes memory and changes the model. Arguments as there."""
    require_torch()
    from torch import nn

    if not isinstance(model, nn.Module):
        given = "" if model is None else f", not a {type(model).__name__}"
        raise TypeError(
            f'load() needs the model{given}: with torch.device("meta"): model = Model(config); '
            "trash_panda.load(pack, model)"
        )
    check_environment()
    if verify not in ("headers", "full"):
        raise ValueError(f'verify is {verify!r}, not "headers" or "full"')
    pack = pack_dir if isinstance(pack_dir, Pack) else Pack.open(pack_dir)
    other_plan = stored_plan(plan)
    if verify == "full":
        _verify(pack, progress)
    from ._assemble import prepare
    from ._gpu import choose_place

    chosen = other_plan or pack.plan
    return prepare(
        model,
        pack,
        other_plan=other_plan,
        place=choose_place(device),
        compute_dtype=chosen.compute_dtype if compute_dtype is None else compute_dtype,
        strict=strict,
        ignore_missing=ignore_missing,
        verify=verify,
        lookahead_bytes=_lookahead_bytes(pack, lookahead),
        key_map=key_map,
        plan=Plan.from_toml(chosen.text, chosen.where),
    )


def stored_plan(plan: Plan | str | os.PathLike[str] | None) -> StoredPlan | None:
    if plan is None:
        return None
    if isinstance(plan, Plan):
        return StoredPlan.parse(plan.to_toml(), "given")
    return StoredPlan.read(Path(plan))


def _verify(pack: Pack, progress: bool | Callable[[int, int], None] | None) -> None:
    with progress_callback(progress, f"verifying {pack.path.name}") as callback:
        mismatches = _native.verify_pack(pack.path, callback)
    if mismatches:
        more = len(mismatches) - _MISMATCHES_SHOWN
        raise IntegrityError(
            f"{pack.path}: {'; '.join(mismatches[:_MISMATCHES_SHOWN])}"
            + (f" and {more} more" if more > 0 else "")
            + "; pack the checkpoint again"
        )


def _lookahead_bytes(pack: Pack, lookahead: int | str | None) -> int | None:
    if lookahead is None:
        lookahead = count_from_environment("LOOKAHEAD", least=1)
    if lookahead is None:
        return None
    if isinstance(lookahead, str):
        return _native.parse_bytes(lookahead)
    if isinstance(lookahead, bool) or not hasattr(type(lookahead), "__index__"):
        raise TypeError(
            f'lookahead is {lookahead!r}; it takes a whole number of blocks or a size ("512MB")'
        )
    if lookahead < 1:
        raise TrashPandaError(f"lookahead is {lookahead} blocks; at least 1 is read ahead")
    size = int(lookahead) * max((block.stored_bytes for block in pack.blocks), default=0)
    if size > _LOOKAHEAD_BYTES_MAX:
        raise ValueError(
            f"lookahead is {lookahead} blocks, more than any memory; the pack has "
            f"{len(pack.blocks)} blocks"
        )
    return size
