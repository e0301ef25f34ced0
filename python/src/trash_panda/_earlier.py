"""The calls of the earlier library: plan, load, install, in three steps."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import TrashPandaError
from ._handle import OffloadHandle
from ._load import load
from ._load_report import LoadReport, make_report
from ._names import listed
from ._offloaded import Offloaded
from ._packing import default_pack, ensure_pack
from ._plan import Plan, as_plan, place_by_prefix
from ._planning import plan as make_plan
from ._storage import stored_as
from ._tiers import Tier
from ._torch import require_torch

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ._keys import KeyMap


@dataclass
class _Loaded:
    """What stream_load() left behind for a model."""

    pack: Path
    plan: Plan
    options: dict[str, Any]
    offloaded: Offloaded
    install_count: int = 0


# What was loaded is kept in the model's own dictionary, as it holds the model; here are the models.
_RECORD = "_trash_panda_loaded"
_models: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def _loaded(model: nn.Module) -> _Loaded | None:
    return model.__dict__.get(_RECORD)


def stream_load(
    model: nn.Module,
    path: str | os.PathLike[str],
    plan: Plan | str | os.PathLike[str] | None = None,
    *,
    offload_prefixes: Sequence[str] = (),
    resident_prefixes: Sequence[str] = (),
    disk_prefixes: Sequence[str] = (),
    skip_prefixes: Sequence[str] = (),
    compute_dtype: str | torch.dtype = "bf16",
    storage_dtype: str | torch.dtype | None = "auto",
    device: str | torch.device | None = None,
    key_map: KeyMap | None = None,
) -> LoadReport:
    """Loads a checkpoint into a model on the meta device, each block where the plan has it.

    The checkpoint is packed beside itself on the first call, `<checkpoint>.panda`; later calls use
    that pack as long as the checkpoint is the same. The model streams from then on;
    install_offload() gives the handle that ends it.

    :param path: a checkpoint: a file, an index or a folder.
    :param plan: a plan or its file; default: by the prefixes, or automatic when there are none.
    :param offload_prefixes: blocks that wait in RAM; resident_prefixes: in memory of the compute
        device; disk_prefixes: on disk. The longest prefix counts; blocks under none are resident.
    :param skip_prefixes: parts of the model that are not needed; they stay as they are.
    :param compute_dtype: as that of load(); a plan's own when one is given.
    :param storage_dtype: as that of plan(); default: that of the plan.
    :param key_map: what names of the checkpoint are called in the model. See load().
    :raises PlanError: a prefix is that of no block.
    :raises MissingTensorsError: the checkpoint lacks tensors of the model.
    """
    require_torch()
    given = as_plan(plan)
    if given is not None and storage_dtype == "auto":
        storage_dtype = given.storage_dtype
    checkpoint = stored_as(Path(path), storage_dtype)
    chosen = _choose_plan(
        checkpoint,
        given,
        {Tier.RAM: offload_prefixes, Tier.GPU: resident_prefixes, Tier.DISK: disk_prefixes},
        compute_dtype,
    )
    pack = default_pack(checkpoint)
    ensure_pack(checkpoint, pack, chosen.save)
    options: dict[str, Any] = {
        "device": device,
        "compute_dtype": compute_dtype if plan is None else None,
        **without_prefixes(key_map, skip_prefixes),
    }
    offloaded = _load_instead(model, pack, chosen, options)
    model.__dict__[_RECORD] = _Loaded(pack, chosen, options, offloaded)
    _models.add(model)
    skipped = tuple(_dotted(prefix) for prefix in listed(skip_prefixes))
    return make_report(pack, chosen, offloaded.unexpected, skipped)


def install_offload(
    model: nn.Module,
    plan: Plan | str | os.PathLike[str] | None = None,
    *,
    device: str | torch.device | None = None,
    compute_dtype: str | torch.dtype | None = None,
    lookahead: int | None = None,
    profile: bool | None = None,
) -> OffloadHandle:
    """Makes the blocks of a model that stream_load() loaded stream in its forward.

    Several handles of one model are counted: it streams until the last one is removed. Without
    arguments nothing is read again; with some the pack is opened anew.

    :param plan: other tiers than those that were loaded.
    :param profile: has no effect; Offloaded.stats() counts always.
    :raises TrashPandaError: the model was not loaded by stream_load().
    """
    loaded = _loaded(model)
    if loaded is None:
        raise TrashPandaError(
            f"this {type(model).__name__} was not loaded by stream_load(); call that first, or "
            "load() for both steps in one"
        )
    given = as_plan(plan)
    changes = {"device": device, "compute_dtype": compute_dtype, "lookahead": lookahead}
    changes = {name: value for name, value in changes.items() if value is not None}
    if given is not None or changes or loaded.offloaded.closed:
        chosen = loaded.plan if given is None else given
        if chosen.source != "auto":
            chosen = chosen.for_checkpoint(Plan.from_toml(loaded.plan.to_toml()))
        options = loaded.options | changes
        loaded.offloaded = _load_instead(model, loaded.pack, chosen, options)
        loaded.plan, loaded.options = chosen, options
    loaded.install_count += 1
    reference = weakref.ref(loaded)

    def undo() -> None:
        record = reference()
        if record is None:  # The model is gone, or was loaded anew since.
            return
        record.install_count -= 1
        if record.install_count <= 0:
            record.install_count = 0
            record.offloaded.remove()

    return OffloadHandle([undo])


def offload_blocks(
    blocks: Iterable[nn.Module],
    *,
    device: str | torch.device | None = None,
    compute_dtype: torch.dtype | None = None,
    disk: Any = None,
    prefetcher: Any = None,
    lookahead: int | None = None,
    profile: bool | None = None,
) -> OffloadHandle:
    """The handle of the models that hold these blocks, loaded by stream_load().

    Blocks that hold their own weights already compute with them where they are; they need none.

    :param compute_dtype: default: that of stream_load().
    :param disk, prefetcher, profile: have no effect: the engine reads ahead by itself.
    :raises TrashPandaError: a block has no weights, and belongs to no model that was loaded.
    """
    handle = OffloadHandle()
    models = {id(part): model for model in _models for part in model.modules()}
    owners: dict[int, nn.Module] = {}
    for number, block in enumerate(blocks):
        owner = models.get(id(block))
        if owner is not None:
            owners[id(owner)] = owner
        elif any(parameter.is_meta for parameter in block.parameters()):
            raise TrashPandaError(
                f"block {number} ({type(block).__name__}) has no weights: load its model by "
                "stream_load() first"
            )
    for owner in owners.values():
        handle.extend(
            install_offload(owner, device=device, compute_dtype=compute_dtype, lookahead=lookahead)
        )
    return handle


def _choose_plan(
    checkpoint: Path,
    plan: Plan | None,
    prefixes: dict[Tier, Sequence[str]],
    compute_dtype: str | torch.dtype,
) -> Plan:
    tiers = {_dotted(prefix): tier for tier, given in prefixes.items() for prefix in listed(given)}
    if plan is not None:
        if tiers:
            raise TypeError("stream_load() takes a plan or prefixes, not both")
        if plan.source == "auto":
            plan.validate(checkpoint)
            return Plan.from_toml(plan.to_toml())
        compute_dtype = plan._compute_dtype
        return plan.for_checkpoint(make_plan(None, checkpoint, compute_dtype=compute_dtype))
    planned = make_plan(None, checkpoint, compute_dtype=compute_dtype)
    return place_by_prefix(planned, tiers, Tier.GPU) if tiers else planned


def _dotted(prefix: str) -> str:
    return prefix if prefix.endswith(".") else prefix + "."


def without_prefixes(key_map: KeyMap | None, skip_prefixes: str | Iterable[str]) -> dict[str, Any]:
    """What load() is given to leave out what is under the prefixes."""
    skipped = tuple(_dotted(prefix) for prefix in listed(skip_prefixes))
    return {
        "ignore_missing": [f"{prefix}*" for prefix in skipped],
        "key_map": _skipping(key_map, skipped) if skipped else key_map,
    }


def _skipping(key_map: KeyMap | None, skipped: tuple[str, ...]) -> KeyMap:
    """The key_map, which drops what is under the prefixes too."""

    def rename(key: str) -> str | None:
        if key_map is None:
            name: str | None = key
        else:
            name = key_map(key) if callable(key_map) else key_map.get(key, key)
        return None if name is None or name.startswith(skipped) else name

    return rename


def _load_instead(model: nn.Module, pack: Path, plan: Plan, options: dict[str, Any]) -> Offloaded:
    """As load(), instead of what stream_load() gave the model before, which stays if this fails."""
    earlier = _loaded(model)
    streams = earlier is not None and not earlier.offloaded.closed
    if earlier is not None:
        earlier.offloaded.remove()
    try:
        return load(pack, model, plan=plan, **options)
    except BaseException:
        if earlier is not None and streams:
            again = load(earlier.pack, model, plan=earlier.plan, **earlier.options)
            earlier.offloaded = again
        raise
