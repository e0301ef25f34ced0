"""Models that run one after another under one limit of memory, the next one loading meanwhile."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from ._earlier import without_prefixes
from ._errors import TrashPandaError
from ._packing import default_pack, ensure_pack
from ._plan import Plan
from ._planning import plan as make_plan
from ._stages import process_memory
from ._storage import stored_as
from ._torch import require_torch
from ._units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ._ahead import LoadAhead
    from ._offloaded import Offloaded

_log = logging.getLogger("trash_panda")


class Stage:
    """One model of a pipeline.

    :param build: makes the model; its parameters are put on the meta device.
    :param forwards: how often the model is called in a run. In the last call each block's memory is
        given back when the block was computed, and the next stage loads into it. None: not known,
        all is given back at the end of the run.
    :param plan_kw: as of plan(), but for what the pipeline decides: `max_ram`, `device`.
    """

    def __init__(
        self,
        name: str,
        build: Callable[[], nn.Module],
        checkpoint: str | os.PathLike[str],
        *,
        forwards: int | None = None,
        **plan_kw: Any,
    ) -> None:
        if forwards is not None and forwards < 1:
            raise ValueError(f"stage {name}: forwards is {forwards}; a run calls its model once")
        for option in ("max_ram", "device"):
            if option in plan_kw:
                raise TypeError(f"stage {name}: {option} is the pipeline's, for all of its stages")
        self.name = name
        self.build = build
        self.checkpoint = Path(checkpoint)
        self.forwards = forwards
        self.plan_kw = plan_kw


@dataclass
class StageReport:
    """What a stage's run took. Sizes in bytes, of weights unless the name says otherwise."""

    name: str
    planned_bytes: int
    before_bytes: int  # Of all stages, when the run was asked for.
    loaded_early_bytes: int = 0  # Of those, what was this stage's.
    load_s: float = 0.0  # That the run waited before its model could be called.
    overlap_s: float = 0.0  # That the next stage was loading while this one ran.
    peak_bytes: int = 0  # Of this stage.
    promoted_bytes: int = 0  # Of that, blocks of the disk tier that stayed while it ran.
    after_bytes: int = 0  # Of all stages: what the next one has loaded.
    process_before_bytes: int = 0
    process_after_bytes: int = 0


@dataclass
class PipelineReport:
    """The runs so far, in their order, and the most weight memory that all took together."""

    limit_bytes: int
    peak_bytes: int
    stages: list[StageReport] = field(default_factory=list)

    def __str__(self) -> str:
        peak, limit = format_bytes(self.peak_bytes), format_bytes(self.limit_bytes)
        lines = [f"weights took {peak} at most, of {limit}"]
        for stage in self.stages:
            before, after = format_bytes(stage.before_bytes), format_bytes(stage.after_bytes)
            early, most = format_bytes(stage.loaded_early_bytes), format_bytes(stage.peak_bytes)
            lines.append(
                f"  {stage.name}: {before} before ({early} loaded early), {most} at most "
                f"({format_bytes(stage.promoted_bytes)} of blocks that streamed), {after} after; "
                f"waited {stage.load_s:.3g} s; the next stage loaded beside it for "
                f"{stage.overlap_s:.3g} s"
            )
        return "\n".join(lines)


class Pipeline:
    """Stages that run in order, such as a text encoder, a diffusion model and a decoder.

        pipeline = Pipeline([Stage("encode", build_t5, "t5"), Stage("denoise", build_dit, "dit")])
        with pipeline.run("encode") as encoder:
            ...

    While a stage runs, the next one's weights are read into what memory is free: first what lies
    outside of its blocks, then its blocks in their order, one at a time. All stages together stay
    within `max_ram`; the running one comes first: if its model is called again, blocks of the disk
    tier stay in memory that is free, before the next stage gets it.

    On a GPU stages load when the one before has ended: each has all of the GPU.

    :param stages: in the order in which they run; another order works, without loading early.
    :param max_ram: of weights; default: what plan() may use of this machine.
    :param device: where to compute, as of load().
    """

    def __init__(
        self,
        stages: Iterable[Stage],
        *,
        max_ram: int | str | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        listed = list(stages)
        self.stages = {stage.name: stage for stage in listed}
        if len(self.stages) != len(listed) or not listed:
            raise ValueError("a pipeline has at least one stage, and each a name of its own")
        self._max_ram = parse_bytes(max_ram)
        self._device = device
        self._plans: dict[str, Plan] = {}
        self._models: dict[str, nn.Module] = {}
        self._group: _native.MemoryGroup | None = None
        self._ahead: LoadAhead | None = None
        self._running: str | None = None
        self._reports: list[StageReport] = []

    def plan(self) -> dict[str, Plan]:
        """Each stage's plan, for all of the memory. Made once.

        Raises DoesNotFitError where a stage does not fit alone, and what plan() raises.
        """
        if not self._plans:
            from ._building import parameters_on_meta

            require_torch()
            plans, limits = {}, []
            for name, stage in self.stages.items():
                with parameters_on_meta():
                    self._models[name] = stage.build()
                options = {**stage.plan_kw, "max_ram": self._max_ram, "device": self._device}
                plans[name] = make_plan(self._models[name], stage.checkpoint, **options)
                limits.append(_memory(plans[name])["ram_budget_bytes"])
            self._group = _native.MemoryGroup(self._max_ram or min(limits), "this pipeline")
            self._plans = plans
        return dict(self._plans)

    @contextlib.contextmanager
    def run(self, name: str) -> Iterator[nn.Module]:
        """The model of a stage, loaded for the time of a `with`.

        The first run packs the checkpoints that have no fresh pack.
        """
        stage = self._find(name)
        self.plan()
        assert self._group is not None
        if self._running is not None:
            raise TrashPandaError(f"stage {self._running} is running; stages run one at a time")
        report = StageReport(
            name=name,
            planned_bytes=_memory(self._plans[name])["ram_used_bytes"],
            before_bytes=self._group.now_bytes,
            process_before_bytes=process_memory(),
        )
        self._running = name
        offloaded = None
        try:
            begin_s = time.perf_counter()
            offloaded = self._open(name, report)
            report.load_s = time.perf_counter() - begin_s
            offloaded.stream.forwards_left = stage.forwards
            offloaded.stream.promotes = True
            if stage.forwards != 1:
                offloaded.stream.promote()
            self._load_next(name, offloaded)
            yield offloaded.model
        finally:
            self._running = None
            if offloaded is not None:
                self._end(offloaded, report)

    def report(self) -> PipelineReport:
        """What the runs took so far."""
        group = self._group
        limit, peak = (0, 0) if group is None else (group.limit_bytes, group.max_bytes)
        return PipelineReport(limit, peak, list(self._reports))

    def close(self) -> None:
        """Lets go of what was loaded early."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.abandon()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _find(self, name: str) -> Stage:
        if name not in self.stages:
            raise TrashPandaError(f"there is no stage {name!r}; there are {', '.join(self.stages)}")
        return self.stages[name]

    def _open(self, name: str, report: StageReport) -> Offloaded:
        """The stage's model, streaming: the one that was loaded early, or anew."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.name == name:
            offloaded = ahead.finish()
            report.loaded_early_bytes = report.before_bytes
            return offloaded
        if ahead is not None:
            ahead.abandon()
            report.before_bytes = 0
        return self._prepare(name, None).finish()

    def _prepare(self, name: str, running: Offloaded | None) -> LoadAhead:
        from ._ahead import LoadAhead
        from ._load import prepare_load

        assert self._group is not None
        stage, planned = self.stages[name], self._plans[name]
        checkpoint = stored_as(stage.checkpoint, planned.storage_dtype)
        pack = default_pack(checkpoint)
        ensure_pack(checkpoint, pack, planned.save)
        prepared = prepare_load(
            pack,
            self._models[name],
            plan=planned,
            device=self._device,
            **without_prefixes(
                stage.plan_kw.get("key_map"), stage.plan_kw.get("skip_prefixes", ())
            ),
        )
        memory = _memory(planned)
        return LoadAhead(
            name,
            prepared,
            self._group,
            # What opening takes, and the blocks that it begins to read at once.
            memory["base_bytes"]
            + memory["slot_bytes"]
            + memory["compute_slot_bytes"]
            + memory["lookahead_bytes"],
            running=None if running is None else running.stream,
        )

    def _load_next(self, name: str, running: Offloaded) -> None:
        names = list(self.stages)
        after = names.index(name) + 1
        # On a GPU the next stage needs memory there that the running one has.
        if after < len(names) and running.stream.gpu is None:
            self._ahead = self._prepare(names[after], running)
            running.stream.on_freed = self._ahead.freed.set
            self._ahead.start()

    def _end(self, offloaded: Offloaded, report: StageReport) -> None:
        """Gives the stage's memory back and notes what it took."""
        assert self._group is not None
        if self._ahead is not None:
            report.overlap_s = self._ahead.loading_s
        report.peak_bytes = int(offloaded.stats()["weight_memory_bytes_max"])
        report.promoted_bytes = offloaded.stream.promoted_bytes
        offloaded.remove()
        gc.collect()
        report.after_bytes = self._group.now_bytes
        report.process_after_bytes = process_memory()
        self._reports.append(report)
        _log.info("stage %s ended: %s", report.name, report)
        if self._ahead is not None:
            self._ahead.freed.set()


def _memory(plan: Plan) -> _native.Plan:
    return _native.parse_plan(plan.to_toml(), "plan")
