"""Plans: where each block of a model waits."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import _native
from ._errors import CheckpointError, PlanError
from ._explanation import explanation
from ._names import listed
from ._tiers import BlockPlan, Tier
from ._units import format_bytes, known_dtype, parse_dtype

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Prediction:
    """Time of a pass in seconds, as simulated from what was measured of the machine."""

    pass_s: float
    bound_s: float  # No schedule of this placement is faster.
    limiting: str  # The channel that the bound comes from: "disk", "decode", "link", "compute".
    stall_s: float  # Of pass_s, time without computation.
    first_pass_s: float


class Plan:
    """Where each block of a model waits: made by plan(), read by load(), or written by hand.

    `blocks` may be edited; what has been loaded already is not changed by that. `warnings` has what
    planning had to say. A plan by hand is for whatever checkpoint it is used with first.
    """

    def __init__(
        self,
        blocks: Iterable[BlockPlan],
        *,
        compute_dtype: str | torch.dtype = "bf16",
        warnings: Iterable[str] = (),
        source: str = "manual",
        toml: str | None = None,
        storage_dtype: str | torch.dtype | None = "auto",
    ) -> None:
        self.blocks = list(blocks)
        self.warnings = list(warnings)
        self.source = source  # "auto" or "manual"
        self.storage_dtype = storage_dtype  # Not in plan files: give it to stream_load() then.
        self._compute_dtype = compute_dtype
        self._toml = toml

    @staticmethod
    def manual(
        *,
        resident: Sequence[str] = (),
        streamed: Sequence[str] = (),
        disk: Sequence[str] = (),
        compute_dtype: str | torch.dtype = "bf16",
        storage_dtype: str | torch.dtype | None = "auto",
    ) -> Plan:
        """A plan by hand, of prefixes ("blocks.0" or "blocks.0."), in order of execution."""
        for dtype in (compute_dtype, storage_dtype):
            if isinstance(dtype, str):
                known_dtype(dtype)
            elif dtype is not None:
                parse_dtype(dtype)
        tiers = ((Tier.GPU, resident), (Tier.RAM, streamed), (Tier.DISK, disk))
        blocks = [BlockPlan(_dotted(p), tier) for tier, prefixes in tiers for p in listed(prefixes)]
        seen: set[str] = set()
        for block in blocks:
            if block.prefix in seen:
                raise PlanError(f"block {block.prefix} is given twice")
            seen.add(block.prefix)
        return Plan(blocks, compute_dtype=compute_dtype, storage_dtype=storage_dtype)

    @staticmethod
    def from_toml(text: str, where: str = "plan", *, warnings: Iterable[str] = ()) -> Plan:
        """A plan of the text of a plan file. Raises PlanError when it is none."""
        raw = _parse(text, where)
        blocks = [
            BlockPlan(
                _dotted(block["name"]),
                Tier(block["tier"]),
                block["stored_bytes"],
                block["expanded_bytes"],
            )
            for block in raw["blocks"]
        ]
        return Plan(
            blocks,
            compute_dtype=raw["compute_dtype"],
            warnings=warnings,
            source="auto",
            toml=text,
        )

    @staticmethod
    def load(
        path: str | os.PathLike[str], checkpoint: str | os.PathLike[str] | None = None
    ) -> Plan:
        """Reads a plan file, of the command line's or of save().

        Raises PlanError when it can't be read, StalePlanError when it is for another checkpoint
        than `checkpoint`.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"can't read plan {path}: {error}") from error
        loaded = Plan.from_toml(text, str(path))
        if checkpoint is not None:
            loaded.validate(checkpoint)
        return loaded

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan file, with the tiers as they are now."""
        Path(path).write_text(self.to_toml(), encoding="utf-8")

    def to_toml(self) -> str:
        """The plan file's text. Raises PlanError for a plan by hand, which has no sizes."""
        if self._toml is None:
            raise PlanError(
                "this plan was written by hand and knows no checkpoint yet: use it with "
                "stream_load(), or make it by plan(model, checkpoint) and assign()"
            )
        planned = Plan.from_toml(self._toml).blocks
        if [block.prefix for block in planned] != [block.prefix for block in self.blocks]:
            raise PlanError(
                "blocks of this plan were added, removed or put in another order, which only their "
                "checkpoint can be: change their tiers, or plan again with other groups"
            )
        tiers = [Tier(block.tier) for block in self.blocks]
        if [block.tier for block in planned] == tiers:
            return self._toml  # With its comments.
        return _native.retier_plan(self._toml, "plan", [tier.value for tier in tiers])

    def for_checkpoint(self, planned: Plan) -> Plan:
        """This plan's tiers in `planned`, a plan of the checkpoint. See place_by_prefix()."""
        return place_by_prefix(planned, {block.prefix: block.tier for block in self.blocks})

    @property
    def compute_dtype(self) -> torch.dtype | None:
        """None: as stored ("keep")."""
        return parse_dtype(self._compute_dtype)

    @property
    def predicted(self) -> Prediction | None:
        """Time of a pass with the tiers as they are now; None where too little was measured."""
        if self._toml is None:
            return None
        predicted = _parse(self.to_toml(), "plan")["predicted"]
        return None if predicted is None else Prediction(**predicted)

    def prefixes(self, tier: Tier | str) -> tuple[str, ...]:
        """The blocks of a tier, in order of execution."""
        wanted = Tier(tier)
        return tuple(block.prefix for block in self.blocks if block.tier == wanted)

    @property
    def resident(self) -> tuple[str, ...]:
        return self.prefixes(Tier.GPU)

    @property
    def streamed(self) -> tuple[str, ...]:
        return self.prefixes(Tier.RAM)

    @property
    def disk(self) -> tuple[str, ...]:
        return self.prefixes(Tier.DISK)

    def assign(
        self,
        tier: Tier | str,
        *,
        indices: Iterable[int] | int | None = None,
        prefixes: Iterable[str] | None = None,
    ) -> Plan:
        """Moves blocks to a tier and returns this plan.

        :param indices: positions in `blocks`, or one; negative ones count from the end.
        :param prefixes: such as "blocks.3" or "blocks.3.".
        :raises PlanError: there is no such block; then none is moved.
        """
        wanted = Tier(tier)
        by_prefix = {block.prefix: block for block in self.blocks}
        chosen = []
        for index in (indices,) if isinstance(indices, int) else indices or ():
            if not -len(self.blocks) <= index < len(self.blocks):
                raise PlanError(f"there is no block {index}: the plan has {len(self.blocks)}")
            chosen.append(self.blocks[index])
        for prefix in listed(prefixes or ()):
            if _dotted(prefix) not in by_prefix:
                raise PlanError(f"the plan has no block {prefix}; the first is {self._first()}")
            chosen.append(by_prefix[_dotted(prefix)])
        for block in chosen:
            block.tier = wanted
        return self

    def _first(self) -> str:
        return self.blocks[0].prefix if self.blocks else "none: it has no blocks"

    def validate(self, checkpoint: str | os.PathLike[str]) -> None:
        """Raises StalePlanError when the plan is for another checkpoint, and says what differs."""
        _native.check_plan(self.to_toml(), "plan", Path(checkpoint))

    def explain(self, index: int) -> str:
        """Why a block waits where it does, what it costs in each pass, and what others would.

        Negative indexes count from the end. Raises PlanError for a plan by hand, and where there
        is no such block.
        """
        if not -len(self.blocks) <= index < len(self.blocks):
            raise PlanError(f"there is no block {index}: the plan has {len(self.blocks)}")
        number = index % len(self.blocks)
        return explanation(
            self.blocks[number], _native.explain_block(self.to_toml(), "plan", number)
        )

    def summary(self) -> str:
        """The blocks of each tier, with their sizes, and the warnings."""
        lines = [f"Plan ({self.source}): {len(self.blocks)} blocks, compute dtype {self._dtype()}"]
        waiting = {Tier.GPU: "in VRAM", Tier.RAM: "in RAM", Tier.DISK: "on disk"}
        for tier, where in waiting.items():
            sizes = [block.stored_bytes for block in self.blocks if block.tier == tier]
            if sizes:
                size = format_bytes(sum(sizes)) if any(sizes) else "size not known"
                lines.append(f"  {len(sizes):>3} {where}: {size}")
        predicted = self.predicted
        if predicted is not None:
            lines.append(
                f"  a pass takes {predicted.pass_s:.3g} s, limited by {predicted.limiting}"
            )
        lines += [f"  WARNING: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    __str__ = summary

    def __repr__(self) -> str:
        return f"<Plan ({self.source}) of {len(self.blocks)} blocks>"

    def _dtype(self) -> str:
        return str(self._compute_dtype).removeprefix("torch.")


def as_plan(plan: Plan | str | os.PathLike[str] | None) -> Plan | None:
    """The plan, or that of the file."""
    return plan if plan is None or isinstance(plan, Plan) else Plan.load(plan)


def place_by_prefix(planned: Plan, tiers: dict[str, Tier], rest: Tier | None = None) -> Plan:
    """Gives each block of `planned` the tier of the longest prefix that it is under.

    Blocks under none get `rest`, or keep their tier. Raises PlanError for a prefix that no block
    is under, naming it.
    """
    unused = dict.fromkeys(tiers)
    for block in planned.blocks:
        found = [prefix for prefix in tiers if block.prefix.startswith(prefix)]
        for prefix in found:
            unused.pop(prefix, None)
        if found:
            block.tier = tiers[max(found, key=len)]
        elif rest is not None:
            block.tier = rest
    if unused:
        raise PlanError(
            f"the checkpoint has no block {', '.join(list(unused)[:5])}; its blocks are such as "
            f"{planned._first()}"
        )
    return planned


def _parse(text: str, where: str) -> _native.Plan:
    try:
        return _native.parse_plan(text, where)
    except CheckpointError as error:
        raise PlanError(f"can't read plan {where}: {error}") from error


def _dotted(prefix: str) -> str:
    return prefix if prefix.endswith(".") else prefix + "."
