"""Packs made on demand, and used again while they are fresh."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from . import _native
from ._errors import CheckpointError
from ._folders import pack_folder
from ._program import run_program
from ._progress import progress_callback

_log = logging.getLogger("trash_panda")
_ENDINGS = (".safetensors.index.json", ".safetensors", ".bin", ".pt", ".pth", ".ckpt")


def default_pack(checkpoint: Path) -> Path:
    """Where the pack of a local checkpoint is: beside it, as the command line has it.

    Where that folder can't be written, in the folder of packs of cached models.
    """
    path = checkpoint.absolute()
    ending = next((e for e in _ENDINGS if path.name.endswith(e) and path.is_file()), "")
    name = path.name.removesuffix(ending) + ".panda"
    beside = path.with_name(name)
    return beside if os.access(path.parent, os.W_OK) or beside.exists() else pack_folder() / name


def ensure_pack(checkpoint: Path, pack: Path, write_plan: Callable[[Path], None]) -> bool:
    """Packs the checkpoint unless `pack` is fresh. `write_plan` writes the plan to a file.

    :return: whether it was packed now.
    """
    if is_fresh(checkpoint, pack):
        return False
    pack.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trash-panda-") as temporary:
        plan = Path(temporary) / "plan.toml"
        write_plan(plan)
        with progress_callback(None, f"packing {checkpoint.name}") as callback:
            run_program(["repack", checkpoint, "--plan", plan, "-o", pack, "--force"], callback)
    return True


def is_fresh(checkpoint: Path, pack: Path) -> bool:
    """Whether `pack` is a pack of the checkpoint as it is now.

    The fingerprint tells another layout only, so files that were touched since the pack was made
    count as other weights.

    Raises CheckpointError when there is something that can't be read as a pack: it may be another
    thing, which is not ours to replace.
    """
    if not pack.exists():
        return False
    current = _native.read_checkpoint(checkpoint)
    try:
        packed = _native.read_manifest(pack)["source_fingerprint"]
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; remove that folder, if it is a pack, to have it made again"
        ) from error
    packed_ns = (pack / "manifest.json").stat().st_mtime_ns
    fresh = packed == current["fingerprint"] and all(
        changed_ns(file) < packed_ns for file in current["files"]
    )
    if not fresh:
        _log.warning("%s is made again: its checkpoint %s changed", pack, checkpoint)
    return fresh


def changed_ns(file: str) -> int:
    """When a file was last changed, also by a copy that keeps its time of modification."""
    status = os.stat(file)
    return max(status.st_mtime_ns, status.st_ctime_ns)
