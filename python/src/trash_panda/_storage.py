"""storage_dtype: a copy of a checkpoint whose weights are stored in another dtype."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from ._errors import CheckpointError, UnsupportedFormatError
from ._packing import changed_ns, default_pack
from ._units import parse_dtype

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_log = logging.getLogger("trash_panda")
_FLOATS = {"F64", "F32", "F16", "BF16"}
_SPELLINGS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8_e5m2",
}
# As the earlier library has it: what is smaller gains nothing and loses accuracy.
_ELEMENTS_MIN = 4096
_SHARD_BYTES = 2 * 10**9
_SIDE_FILES = ("config.json", "hf_quant_config.json")


def stored_as(checkpoint: Path, storage_dtype: str | torch.dtype | None) -> Path:
    """The checkpoint itself where nothing would change, else a copy, made once and kept beside it.

    In "fp8" the 2-D weights of blocks that have at least 4096 elements are quantized, one scale
    each: lossy, as quantize_fp8() does it. Other dtypes are given to all floats of blocks. Weights
    that have scales already, and what lies outside of blocks, stay as they are.

    Raises UnsupportedFormatError for other dtypes, and for checkpoints that are no safetensors.
    """
    wanted = parse_dtype(storage_dtype)
    if wanted is None:
        return checkpoint
    name = _SPELLINGS.get(str(wanted).removeprefix("torch."))
    if name is None:
        known = ", ".join(_SPELLINGS.values())
        raise UnsupportedFormatError(f"storage_dtype={storage_dtype!r}: it is one of {known}")
    source = _native.read_checkpoint(checkpoint)
    changed = _changed(source, wanted)
    if not changed:
        return checkpoint
    target = default_pack(checkpoint)
    target = target.with_name(f"{target.name.removesuffix('.panda')}.{name}")
    if not _is_fresh(target, source):
        _log.info("%s is written: %s with %d weights as %s", target, checkpoint, len(changed), name)
        _write(source, target, changed, wanted)
    return target


def _changed(source: _native.Checkpoint, wanted: torch.dtype) -> set[str]:
    """Names of the tensors that will be stored otherwise."""
    from ._dtypes import torch_dtype

    names = {name for name, _, _ in source["tensors"]}
    groups = _native.find_blocks(source["tensors"], [])
    blocks = {block for _, members in groups for block, _ in members}
    changed = set()
    for name, dtype, shape in source["tensors"]:
        parts = name.split(".")
        inside = any(".".join(parts[:end]) in blocks for end in range(1, len(parts)))
        if not inside or dtype not in _FLOATS or torch_dtype(dtype) == wanted:
            continue
        if wanted.itemsize == 1:
            count = 1
            for size in shape:
                count *= size
            # Whose scale's name is taken is no weight to quantize.
            if (
                len(shape) != 2
                or count < _ELEMENTS_MIN
                or not name.endswith(".weight")
                or f"{name}_scale" in names
            ):
                continue
        elif "scale" in parts[-1]:
            continue  # fp8 weights' scales stay exact.
        changed.add(name)
    return changed


def _is_fresh(target: Path, source: _native.Checkpoint) -> bool:
    index = target / "model.safetensors.index.json"
    try:
        written = json.loads(index.read_text(encoding="utf-8"))["metadata"]["trash_panda_source"]
    except FileNotFoundError:
        if target.exists():
            raise CheckpointError(
                f"{target} is in the way of a copy in another storage dtype; remove or rename it"
            ) from None
        return False
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"can't read {index}: {error}; remove {target}") from error
    return bool(written == source["fingerprint"]) and all(
        changed_ns(file) < index.stat().st_mtime_ns for file in source["files"]
    )


def _write(
    source: _native.Checkpoint, target: Path, changed: set[str], wanted: torch.dtype
) -> None:
    """Writes the copy shard by shard, and renames it when it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=target.parent) as folder:
        partial = Path(folder) / "copy"
        partial.mkdir()
        weight_map: dict[str, str] = {}
        shard: dict[str, Tensor] = {}
        for name, tensor in _converted(source, changed, wanted):
            shard[name] = tensor
            if sum(each.nbytes for each in shard.values()) >= _SHARD_BYTES:
                _write_shard(partial, shard, weight_map)
        _write_shard(partial, shard, weight_map)
        for side in _SIDE_FILES:
            beside = Path(source["files"][0]).with_name(side)
            if beside.is_file():
                shutil.copyfile(beside, partial / side)
        index = {
            "metadata": {"trash_panda_source": source["fingerprint"]},
            "weight_map": weight_map,
        }
        (partial / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        os.replace(partial, target)


def _write_shard(folder: Path, shard: dict[str, Tensor], weight_map: dict[str, str]) -> None:
    from safetensors.torch import save_file

    if shard:
        name = f"model-{len(set(weight_map.values())) + 1:05d}.safetensors"
        save_file(shard, folder / name)
        weight_map.update(dict.fromkeys(shard, name))
        shard.clear()


def _converted(
    source: _native.Checkpoint, changed: set[str], wanted: torch.dtype
) -> Iterator[tuple[str, Tensor]]:
    """The copy's tensors. One of the source is in memory at a time."""
    from ._fp8 import quantize_fp8

    for name, tensor in _read(source):
        if name not in changed:
            yield name, tensor
        elif wanted.itemsize == 1:
            codes, scale = quantize_fp8(tensor, wanted)
            yield name, codes
            yield f"{name}_scale", scale
        else:
            yield name, tensor.to(wanted)


def _read(source: _native.Checkpoint) -> Iterator[tuple[str, Tensor]]:
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise CheckpointError(
            "storage_dtype needs the package safetensors: pip install safetensors"
        ) from error
    listed = {name for name, _, _ in source["tensors"]}
    done: set[str] = set()
    for file in source["files"]:
        if not file.endswith(".safetensors"):
            raise UnsupportedFormatError(
                f"{file}: only safetensors files can be stored in another dtype; convert it first"
            )
        reader: Any
        with safe_open(file, framework="pt") as reader:
            for name in sorted(listed.intersection(reader.keys())):
                if name in done:
                    raise UnsupportedFormatError(
                        f"{file}: {name} is in another file of the checkpoint too; leave one out"
                    )
                done.add(name)
                yield name, reader.get_tensor(name)
