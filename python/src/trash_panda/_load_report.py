"""What stream_load() found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import _native
from ._plan import Plan
from ._tiers import Tier
from ._units import format_bytes


@dataclass
class LoadReport:
    """What stream_load() found. Sizes are in bytes, as stored."""

    counts: dict[str, int] = field(default_factory=dict)  # Tensors by tier; "base": in no block.
    nbytes: dict[str, int] = field(default_factory=dict)  # By tier.
    kinds: dict[str, int] = field(default_factory=dict)  # "cast", "fp8_scaled", "fp8_plain".
    unexpected: list[str] = field(default_factory=list)  # Stored, and not the model's.
    skipped: int = 0  # Stored tensors under skip_prefixes.
    aux_keys: int = 0  # Scales.
    warnings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        tiers = [
            f"{n} tensors in {t} ({format_bytes(self.nbytes[t])})" for t, n in self.counts.items()
        ]
        lines = ["loaded " + (", ".join(tiers) or "nothing")]
        if self.unexpected:
            lines.append(f"  {len(self.unexpected)} tensors that the model does not use")
        lines += [f"  WARNING: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def make_report(
    pack: Path, plan: Plan, unexpected: Iterable[str], skipped: tuple[str, ...]
) -> LoadReport:
    """Counts what a pack holds, by the tiers of the plan that it was loaded with.

    :param skipped: prefixes, with a final dot, of what was not wanted.
    """
    report = LoadReport(
        unexpected=[name for name in unexpected if not name.startswith(skipped)],
        warnings=list(plan.warnings),
    )
    tiers = {block.prefix: Tier(block.tier).value for block in plan.blocks}
    for extent in _native.read_manifest(pack)["extents"]:
        tier = tiers.get(extent["name"] + ".", "base")
        for tensor in extent["tensors"]:
            if tensor["is_scale"]:
                report.aux_keys += 1
                continue
            if skipped and tensor["name"].startswith(skipped):
                report.skipped += 1
                continue
            report.counts[tier] = report.counts.get(tier, 0) + 1
            report.nbytes[tier] = report.nbytes.get(tier, 0) + tensor["size_bytes"]
            kind = _kind(tensor["dtype"], tensor["has_scale"])
            report.kinds[kind] = report.kinds.get(kind, 0) + 1
    return report


def _kind(dtype: str, has_scale: bool) -> str:
    if not dtype.startswith("F8"):
        return "cast"
    return "fp8_scaled" if has_scale else "fp8_plain"
