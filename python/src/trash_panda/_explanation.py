"""What the planner knows of one block, in words."""

from __future__ import annotations

from . import _native
from ._tiers import BlockPlan, Tier
from ._units import format_bytes

_WHERE = {"gpu": "in VRAM", "ram": "in RAM", "disk": "on disk"}
_REASONS = {
    "assigned": "as asked for",
    "edited": "changed by hand",
    "fastest": "nothing is faster",
    "no_room": "there is no room elsewhere",
    "not_faster": "nothing else would be faster",
    "would_be_faster": "another tier would be faster",
    "not_measured": "what another tier brings is not measured",
}


def explanation(block: BlockPlan, raw: _native.BlockExplanation) -> str:
    """One line for people."""
    steps = {
        "to read": raw["read_s"],
        "to decode": raw["decode_s"],
        "to copy": raw["copy_s"],
        "to expand and compute": raw["compute_s"],
    }
    costs = [f"{_time(seconds)} {what}" for what, seconds in steps.items() if seconds]
    parts = [
        f"{block.prefix} waits {_WHERE[Tier(block.tier).value]} "
        f"({_REASONS.get(raw['reason'], raw['reason'])}): {format_bytes(block.stored_bytes)} "
        f"stored, {format_bytes(block.expanded_bytes)} expanded",
        "each pass takes " + (", ".join(costs) or "no time that is known"),
    ]
    if raw["stall_s"] > 0:
        parts.append(f"the pass waits {_time(raw['stall_s'])} for it ({raw['stalled_by']})")
    parts += [_move(move) for move in raw["moves"]]
    return "; ".join(parts)


def _move(move: _native.TierMove) -> str:
    pass_s = "" if move["pass_s"] is None else f"a pass would take {_time(move['pass_s'])}"
    fits = "" if move["fits"] else "it does not fit"
    told = " and ".join(part for part in (pass_s, fits) if part) or "it fits"
    return f"{_WHERE[move['tier']]} {told}"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
