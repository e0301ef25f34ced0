"""plan(): where each block of a model shall wait on this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from ._block_groups import BlockGroup
from ._errors import DoesNotFitError
from ._hardware import Hardware
from ._names import listed
from ._plan import Plan
from ._program import run_program
from ._storage import stored_as
from ._tiers import Tier
from ._units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ._keys import KeyMap

_NAMES_SHOWN = 3


def plan(
    model: nn.Module | None,
    checkpoint: str | os.PathLike[str],
    *,
    compute_dtype: str | torch.dtype = "bf16",
    storage_dtype: str | torch.dtype | None = "auto",
    resident_blocks: int | None = None,
    max_vram: int | str | None = None,
    headroom_vram: int | str | None = None,
    activation_vram: int | str | None = None,
    max_ram: int | str | None = None,
    min_free_ram: int | str | None = None,
    allow_disk: bool = True,
    lookahead: int | None = None,
    spread_disk: bool = True,
    hardware: Hardware | None = None,
    groups: Sequence[BlockGroup | str] | BlockGroup | str | None = None,
    hw: str | os.PathLike[str] | None = None,
    profile: str | os.PathLike[str] | None = None,
    placement: str = "cost",
    device: str | torch.device | None = None,
    key_map: KeyMap | None = None,
    skip_prefixes: Iterable[str] = (),
    context: int | None = None,
) -> Plan:
    """Plans where each block of a checkpoint waits, as `trash-panda plan` does.

    Sizes are numbers of bytes or text ("9GB", decimal). Variables of the environment such as
    TRASH_PANDA_MIN_FREE_RAM stand in for what is not given.

    :param model: on the meta device; what it needs and the checkpoint lacks becomes a warning.
        None: not compared.
    :param compute_dtype: "bf16", "fp16", "fp32", "keep" or a torch dtype.
    :param storage_dtype: "auto": as the checkpoint stores weights. "fp8", "bf16", "fp16", "fp32":
        a copy of the checkpoint is written beside it, `<checkpoint>.fp8`, whose blocks are stored
        so, and the plan is for that copy. "fp8" is lossy.
    :param resident_blocks: exactly so many blocks in VRAM.
    :param headroom_vram: VRAM to keep free, 1.5GB; or, measured, `activation_vram`.
    :param activation_vram: what a use takes beside the weights; "auto": what stage() remembers of
        this checkpoint.
    :param min_free_ram: RAM to keep free; by default 8 % of it within 1 to 4 GiB.
    :param allow_disk: False: an error if not all blocks can stay in memory.
    :param lookahead: blocks to read ahead.
    :param spread_disk: False: blocks on disk are the last ones, instead of spread between others.
    :param hardware: another machine, by detect_hardware() or by hand; `hw`: by a file of hwreport.
    :param groups: containers whose numbered children are the blocks; default: searched.
    :param profile: the log of a run, by which blocks' times are known.
    :param context: tokens that a KV cache beside the weights is to hold.
    :param placement: "cost", or "greedy" as the earlier library placed blocks.
    :param key_map, skip_prefixes: as those of stream_load(), for comparing with the model.
    :raises DoesNotFitError: a budget can't be met; PlanError: a setting is wrong.
    :raises CheckpointError: the checkpoint is missing or damaged.
    """
    named = os.fspath(checkpoint)
    checkpoint = stored_as(Path(checkpoint), storage_dtype)
    from ._dtypes import compute_dtype_name, plan_dtype_name

    options: dict[str, Any] = {
        "--compute-dtype": plan_dtype_name(compute_dtype_name(compute_dtype)),
        "--resident-blocks": resident_blocks,
        "--max-vram": parse_bytes(max_vram),
        "--headroom-vram": parse_bytes(headroom_vram),
        "--activation-vram": _activation_bytes(activation_vram, named),
        "--max-ram": parse_bytes(max_ram),
        "--min-free-ram": None if min_free_ram == "auto" else parse_bytes(min_free_ram),
        "--lookahead": lookahead,
        "--placement": placement,
        "--hw": hw,
        "--profile": profile,
        "--context": context,
        "--gpu": _gpu_index(device),
    }
    command: list[str | Path] = ["plan", Path(checkpoint)]
    for flag, value in options.items():
        if value is not None:
            command += [flag, str(value)]
    if not allow_disk:
        command.append("--no-disk")
    for group in (groups,) if isinstance(groups, (str, BlockGroup)) else groups or ():
        command += ["--group", group if isinstance(group, str) else group.name]
    beside = 0
    if model is not None:
        from ._merged_memory import merged_bytes

        beside = merged_bytes(model, checkpoint, compute_dtype, key_map)
    made = plan_beside(command, hardware, beside)
    made.storage_dtype = storage_dtype
    if activation_vram == "auto" and options["--activation-vram"] is None:
        made.warnings.append(
            f"what {named} takes beside its weights is not known: run stage() once"
        )
    if not spread_disk:
        _move_disk_to_the_end(made)
    if model is not None:
        made.warnings += _lacking(model, checkpoint, key_map, skip_prefixes)
    return made


def plan_beside(
    command: Sequence[str | Path], hardware: Hardware | None, beside_bytes: int
) -> Plan:
    """Runs the command line's plan, with RAM left for what the model makes beside its stream.

    That is what transformers stacks and joins. A machine that is too small for both gets the plan
    without, and a warning.
    """
    made = _run(command, hardware)
    if beside_bytes == 0:
        return made
    budget = _native.parse_plan(made.to_toml(), "plan")["ram_budget_bytes"]
    if budget > beside_bytes:
        try:
            less = [*_without_max_ram(command), "--max-ram", str(budget - beside_bytes)]
            again = _run(less, hardware)
        except DoesNotFitError:
            pass  # The warning says it.
        else:
            return again
    made.warnings.append(
        f"{format_bytes(beside_bytes)} for tensors that are made of several stored ones come on "
        f"top of what the plan takes of {format_bytes(budget)} RAM"
    )
    return made


def _without_max_ram(command: Sequence[str | Path]) -> list[str | Path]:
    """The command with neither budget that would be given a second time."""
    result = list(command)
    if "--max-ram" in result:
        at = result.index("--max-ram")
        del result[at : at + 2]
    return result


def _run(command: Sequence[str | Path], hardware: Hardware | None) -> Plan:
    with tempfile.TemporaryDirectory(prefix="trash-panda-") as folder:
        file = Path(folder) / "plan.toml"
        machine = Path(folder) / "hardware.json"
        if hardware is not None:
            machine.write_text(hardware.to_json(), encoding="utf-8")
            command = [*command, "--hw", machine]
        document = run_program([*command, "-o", file])
        text = file.read_text(encoding="utf-8")
    return Plan.from_toml(text, warnings=document.get("warnings") or ())


def _activation_bytes(wanted: int | str | None, checkpoint: str) -> int | None:
    if wanted != "auto":
        return parse_bytes(wanted)
    from ._stages import remembered_activation

    return remembered_activation(checkpoint)


def _gpu_index(device: str | torch.device | None) -> int | None:
    kind, _, index = str(device or "cpu").partition(":")
    return int(index) if kind == "cuda" and index else None


def _move_disk_to_the_end(made: Plan) -> None:
    movable = [block for block in made.blocks if block.tier != Tier.GPU]
    count = len(made.disk)
    for number, block in enumerate(movable):
        block.tier = Tier.DISK if number >= len(movable) - count else Tier.RAM


def _lacking(
    model: nn.Module,
    checkpoint: str | os.PathLike[str],
    key_map: KeyMap | None,
    skip_prefixes: Iterable[str],
) -> list[str]:
    from ._match import missing_names

    stored = [name for name, _, _ in _native.read_checkpoint(Path(checkpoint))["tensors"]]
    skipped = listed(skip_prefixes)
    names = [name for name in missing_names(model, stored, key_map) if not name.startswith(skipped)]
    if not names:
        return []
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return [
        f"{checkpoint} lacks {len(names)} tensors of {type(model).__name__}: "
        f"{', '.join(names[:_NAMES_SHOWN])}{more}"
    ]
