"""What run.py prints: the figures, their ratios, and the lines of the acceptance."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from peers import OURS, PEERS
from safetensors.torch import load_file

EARLIER = "dumpsterpanda"
REFERENCE = "pack"
FORMS = ("pack", "coded")
# A block rounds some 12 results to bf16, each by up to 2**-9 of itself, in both of the models that
# are compared; such errors add up as squares.
ROUNDINGS_PER_BLOCK = 12
ROUNDING = 2.0**-9

Line = dict[str, Any]


@dataclass
class Outcome:
    """What became of a peer: a line for each round, or the reason why there are none."""

    prepare_s: float = 0
    rounds: list[Line] = field(default_factory=list)
    reason: str = ""


class Measured(Protocol):
    blocks: int
    checkpoint: Path

    def copy(self, peer: str) -> Path: ...
    def logits(self, peer: str) -> Path: ...


def pass_seconds(line: Line) -> list[float]:
    """Of each pass, with what was read before it began charged at the pass's own rate."""
    return [
        seconds * (1 + ahead / read) if read else seconds
        for seconds, read, ahead in zip(
            line["pass_s"], line["read_bytes"], line["ahead_bytes"], strict=True
        )
    ]


def later(values: list[float]) -> list[float]:
    """Those of the passes after the first, if there are any."""
    return values[1:] or values


def steady_s(line: Line) -> float:
    return statistics.median(later(pass_seconds(line)))


def first_pass_s(line: Line) -> float:
    return float(line["pass_s"][0])


def first_result_s(line: Line) -> float:
    """From a model without weights on; where a peer builds that itself, with building it."""
    return float(line["load_s"] + line["pass_s"][0])


def cpu_s(line: Line) -> float:
    return statistics.median(later(line["cpu_s"]))


def peak_bytes(line: Line) -> float:
    return float(line["peak_anonymous_bytes"])


def read_bytes(line: Line) -> float:
    totals = [a + b for a, b in zip(line["read_bytes"], line["ahead_bytes"], strict=True)]
    return statistics.median(later(totals))


def direct_read_s(line: Line) -> float:
    return float(line["direct_read_s"])


Figure = Callable[[Line], float]


def median(outcome: Outcome, figure: Figure) -> float:
    return statistics.median(figure(line) for line in outcome.rounds)


def to_read(outcome: Outcome, figure: Figure) -> float:
    """Median of the rounds' ratios to the direct read just before."""
    return statistics.median(figure(line) / direct_read_s(line) for line in outcome.rounds)


def to_ours(outcome: Outcome, ours: Outcome, figure: Figure) -> float:
    """Median of the rounds' ratios; not a number when ours failed."""
    pairs = list(zip(outcome.rounds, ours.rounds, strict=False))
    return statistics.median(figure(a) / figure(b) for a, b in pairs) if pairs else math.nan


def difference(logits: Path, reference: Path) -> float:
    """Root mean square of the difference, as a share of that of the reference."""
    a, b = (load_file(path)["logits"].double() for path in (logits, reference))
    if a.shape != b.shape or not torch.isfinite(a).all():
        return math.inf
    return float((a - b).square().mean().sqrt() / b.square().mean().sqrt())


def remark(peer: str, outcome: Outcome, outcomes: dict[str, Outcome], bench: Measured) -> str:
    """How its result compares with ours."""
    if not outcomes[REFERENCE].rounds or peer == REFERENCE:
        return ""
    digests = {line["digest"] for line in outcome.rounds + outcomes[REFERENCE].rounds}
    if len(digests) == 1:
        return "same bits"
    share = difference(bench.logits(peer), bench.logits(REFERENCE))
    allowed = ROUNDING * math.sqrt(2 * ROUNDINGS_PER_BLOCK * bench.blocks)
    return f"differs by {share:.2%}" + (f": MORE THAN ROUNDING ({allowed:.2%})" * (share > allowed))


def print_figures(ran: dict[str, Outcome], remarks: dict[str, str]) -> None:
    print(
        f"{'':14} {'pass s':>20} {'first':>7} {'to first':>9} {'CPU s':>7} {'peak':>7} {'read':>6}"
        f" {'copy':>7}\n{'':14} {'median (min..max)':>20} {'pass s':>7} {'result s':>9}"
        f" {'a pass':>7} {'MB':>7} {'GB':>6} {'s':>7}"
    )
    for peer, outcome in ran.items():
        seconds = [steady_s(line) for line in outcome.rounds]
        spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f}..{max(seconds):.2f})"
        print(
            f"{peer:14} {spread:>20} {median(outcome, first_pass_s):7.2f} "
            f"{median(outcome, first_result_s):9.2f} {median(outcome, cpu_s):7.2f} "
            f"{median(outcome, peak_bytes) / 1e6:7.0f} {median(outcome, read_bytes) / 1e9:6.2f} "
            f"{outcome.prepare_s:7.0f}  {remarks[peer]}"
        )


def print_ratios(ran: dict[str, Outcome]) -> None:
    forms = {name: ran[name] for name in FORMS if name in ran}
    print("\nto a direct read of the checkpoint just before, and to ours of the same round")
    heads = "".join(
        f" | {name + ':':7} {'pass':>6} {'result':>6} {'CPU':>6} {'peak':>6}" for name in forms
    )
    print(f"{'':14} {'pass':>7} {'first':>7} {'result':>7}{heads}")
    for peer, outcome in ran.items():
        reads = [to_read(outcome, figure) for figure in (steady_s, first_pass_s, first_result_s)]
        row = "".join(f" {ratio:7.2f}" for ratio in reads)
        for ours in forms.values():
            figures = (steady_s, first_result_s, cpu_s, peak_bytes)
            ratios = [to_ours(outcome, ours, figure) for figure in figures]
            row += f" | {'':7}" + "".join(f" {ratio:6.2f}" for ratio in ratios)
        print(f"{peer:14}{row}")


def stored_share(peer: str, bench: Measured) -> float:
    """Bytes of a pack's shards, as a share of the checkpoint."""
    shards = (bench.copy(peer) / "model.panda").glob("*.safetensors")
    return sum(shard.stat().st_size for shard in shards) / bench.checkpoint.stat().st_size


def print_acceptance(ran: dict[str, Outcome], bench: Measured) -> None:
    forms = {name: ran[name] for name in FORMS if name in ran}
    others = {name: outcome for name, outcome in ran.items() if name in PEERS and name != EARLIER}
    lines: list[tuple[str, dict[str, float], str]] = []
    if others:
        fastest = min(others, key=lambda name: median(others[name], steady_s))
        ratios = {name: to_ours(others[fastest], ours, steady_s) for name, ours in forms.items()}
        lines.append((f"a pass of {fastest}, the fastest peer : ours", ratios, ">= 1.4 in one"))
    if EARLIER in ran:
        ratios = {name: to_ours(ran[EARLIER], ours, steady_s) for name, ours in forms.items()}
        lines.append(("a pass of the earlier library : ours", ratios, ">= 2.2 in one"))
    ratios = {
        name: to_read(ours, first_result_s) / stored_share(name, bench)
        for name, ours in forms.items()
    }
    lines.append(("our load and first pass : direct read of the pack", ratios, "<= 1.15"))
    print()
    for what, ratios, wanted in lines:
        figures = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        print(f"{what}: {figures}   wanted: {wanted}")


def print_report(outcomes: dict[str, Outcome], bench: Measured) -> None:
    """Everything that was measured, then what was not and why."""
    ran = {name: outcome for name, outcome in outcomes.items() if outcome.rounds}
    if ran:
        lines = [line for outcome in ran.values() for line in outcome.rounds]
        reads = [direct_read_s(line) for line in lines]
        size_gb = bench.checkpoint.stat().st_size / 1e9
        print(
            f"{bench.blocks} blocks, {size_gb:.2f} GB; direct read {statistics.median(reads):.2f} s"
            f" ({min(reads):.2f}..{max(reads):.2f}), {size_gb / statistics.median(reads):.2f} GB/s"
        )
        print(f"ours: {', '.join(OURS)}; the earlier library: {EARLIER}\n")
        print_figures(ran, {name: remark(name, o, outcomes, bench) for name, o in ran.items()})
        print_ratios(ran)
        print_acceptance(ran, bench)
    for name, outcome in outcomes.items():
        if outcome.reason:
            print(f"{name}: {outcome.reason}")
