"""What this machine has, and what it does."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _native
from ._errors import PlanError
from ._program import run_program
from ._units import format_bytes

_SCHEMA = "trash-panda/hardware/1"
_BENCH = {"quick": "--quick", "full": "--full", "none": "--no-bench"}


@dataclass
class Hardware:
    """Memory to plan with, in bytes. Fields may be changed to plan for another machine."""

    vram_total: int = 0
    vram_free: int = 0
    ram_total: int = 0
    ram_available: int = 0
    gpu_name: str | None = None
    compute_capability: tuple[int, int] | None = None
    document: dict[str, Any] = field(default_factory=dict, repr=False)  # All that was found out.

    def summary(self) -> str:
        """One line for people."""
        ram = f"RAM {format_bytes(self.ram_available)} free of {format_bytes(self.ram_total)}"
        if self.gpu_name is None:
            return f"{ram}, no GPU"
        vram = f"{format_bytes(self.vram_free)} free of {format_bytes(self.vram_total)}"
        return f"{ram}, {self.gpu_name} with {vram}"

    __str__ = summary

    def to_json(self) -> str:
        """The document that `trash-panda plan --hw` reads, with the fields as they are now."""
        document = {"schema": _SCHEMA, **copy.deepcopy(self.document)}
        document["ram_total_bytes"] = self.ram_total
        document["ram_available_bytes"] = self.ram_available
        gpus = document.get("gpus") or [{}]
        if self.vram_total:
            gpus[0] |= {"name": self.gpu_name or "GPU", "total_bytes": self.vram_total}
            gpus[0] |= {"free_bytes": self.vram_free or self.vram_total}
        document["gpus"] = gpus[:1] if self.vram_total else []
        return json.dumps(document)


def detect_hardware(device_index: int = 0) -> Hardware:
    """Asks the system for memory and GPUs; nothing is measured.

    :param device_index: of the GPU.
    :raises PlanError: there are GPUs, but no such one.
    """
    document = json.loads(_native.probe_hardware())
    found = Hardware(
        ram_total=document["ram_total_bytes"],
        ram_available=document["ram_available_bytes"],
        document=document,
    )
    gpus = document["gpus"]
    if not gpus:
        return found
    if not 0 <= device_index < len(gpus):
        raise PlanError(f"there is no GPU {device_index}: found {len(gpus)}")
    gpu = gpus[device_index]
    document["gpus"] = [gpu]
    found.vram_total, found.vram_free = gpu["total_bytes"], gpu["free_bytes"]
    found.gpu_name = gpu["name"]
    major, _, minor = str(gpu.get("compute_capability") or "").partition(".")
    if major.isdecimal() and minor.isdecimal():
        found.compute_capability = (int(major), int(minor))
    return found


def hwreport(
    path: str | os.PathLike[str] | None = None, *, bench: str = "quick", redact: bool = True
) -> dict[str, Any]:
    """Measures what this machine really does, as `trash-panda hwreport`; plans use it afterwards.

    :param path: the drive of this folder or checkpoint is measured; default: the current folder.
    :param bench: "quick" (about 10 s), "full" (about 60 s), or "none": measures nothing.
    :param redact: replaces names, serial numbers and addresses.
    :return: the report; sizes in bytes, rates in bytes per second, None where not measured.
    """
    if bench not in _BENCH:
        raise ValueError(f"bench is {bench!r}, not one of {', '.join(_BENCH)}")
    command: list[str | Path] = ["hwreport", _BENCH[bench]]
    if path is not None:
        command += ["--path", Path(path)]
    if not redact:
        command.append("--no-redact")
    report: dict[str, Any] = run_program(command)
    return report
