"""What a pack holds, as plain data. Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import _native
from ._errors import CheckpointError, PlanError, StalePlanError

PLAN_NAME = "plan.toml"


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a pack. Scales are not listed: they belong to their weight."""

    name: str
    dtype: str  # As safetensors spells it: "BF16", "F8_E4M3".
    shape: tuple[int, ...]
    has_scale: bool


@dataclass(frozen=True)
class Extent:
    """A block of a pack, or a group of its base tensors."""

    name: str
    tier: str
    stored_bytes: int
    tensors: tuple[StoredTensor, ...]


@dataclass(frozen=True)
class StoredPlan:
    """The part of a plan that loading follows."""

    where: str
    text: str  # All of it.
    fingerprint: str
    compute_dtype: str
    tiers: dict[str, str]  # By block name.

    @staticmethod
    def read(file: Path) -> StoredPlan:
        """Reads a plan's TOML. Raises PlanError when it can't be read or is none."""
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"can't read plan {file}: {error}") from error
        return StoredPlan.parse(text, str(file))

    @staticmethod
    def parse(text: str, where: str) -> StoredPlan:
        """Reads the text of a plan file."""
        try:
            raw = _native.parse_plan(text, where)
        except CheckpointError as error:
            raise PlanError(f"can't read plan {where}: {error}") from error
        return StoredPlan(
            where=where,
            text=text,
            fingerprint=raw["model_fingerprint"],
            compute_dtype=raw["compute_dtype"],
            tiers={block["name"]: block["tier"] for block in raw["blocks"]},
        )


@dataclass(frozen=True)
class Pack:
    """A pack's manifest and plan."""

    path: Path
    fingerprint: str
    base: tuple[Extent, ...]
    blocks: tuple[Extent, ...]  # In execution order.
    aliases: dict[str, str]  # Tied name → name of the stored tensor.
    plan: StoredPlan
    is_packed: bool = True  # Else it is a checkpoint that streams as it is.

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Pack:
        """Reads manifest and plan and checks that the shards are there with their sizes."""
        folder = Path(path)
        manifest = _native.read_manifest(folder)
        return Pack._make(folder, manifest, StoredPlan.read(folder / PLAN_NAME), is_packed=True)

    @staticmethod
    def of_checkpoint(path: Path, plan: StoredPlan) -> Pack:
        """A checkpoint seen as the pack that it would make.

        Raises UnsupportedFormatError when only a pack can hold it.
        """
        manifest = _native.checkpoint_manifest(path, plan.text)
        return Pack._make(path, manifest, plan, is_packed=False)

    @staticmethod
    def _make(path: Path, manifest: _native.Manifest, plan: StoredPlan, *, is_packed: bool) -> Pack:
        extents = [_extent(raw) for raw in manifest["extents"]]
        return Pack(
            path=path,
            fingerprint=manifest["source_fingerprint"],
            base=tuple(extent for extent in extents if extent.tier == "base"),
            blocks=tuple(extent for extent in extents if extent.tier != "base"),
            aliases=manifest["aliases"],
            plan=plan,
            is_packed=is_packed,
        )

    def tensors(self) -> Iterator[StoredTensor]:
        """All of them, base first."""
        for extent in (*self.base, *self.blocks):
            yield from extent.tensors

    def tiers(self, plan: StoredPlan | None) -> list[str]:
        """The tier of each block by `plan`; None: as the pack has them."""
        if plan is None:
            return [block.tier for block in self.blocks]
        if plan.fingerprint != self.fingerprint:
            raise StalePlanError(
                f"plan {plan.where} was made for another checkpoint than pack {self.path} "
                f"(fingerprint {plan.fingerprint[:12]}, not {self.fingerprint[:12]}); make it "
                "again with trash-panda plan"
            )
        lacking = [block.name for block in self.blocks if block.name not in plan.tiers]
        if lacking:
            raise PlanError(
                f"plan {plan.where} has no tier for {len(lacking)} of the {len(self.blocks)} "
                f"blocks of pack {self.path}, the first is {lacking[0]}"
            )
        return [plan.tiers[block.name] for block in self.blocks]


def _extent(raw: _native.ManifestExtent) -> Extent:
    return Extent(
        name=raw["name"],
        tier=raw["tier"],
        stored_bytes=raw["stored_bytes"],
        tensors=tuple(
            StoredTensor(tensor["name"], tensor["dtype"], tensor["shape"], tensor["has_scale"])
            for tensor in raw["tensors"]
            if not tensor["is_scale"]
        ),
    )
