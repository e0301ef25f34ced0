"""Reads packs by docs/pack_format.md alone: the standard library and xxhash's checksums."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xxhash import xxh3_128_hexdigest

import exponent_code
import zstd_code

BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(
        ("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8
    ),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("C64", "F64", "I64", "U64"), 64),
}


@dataclass(frozen=True)
class PlainTensor:
    """A tensor as the source has it."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


def check(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def check_sum(data: bytes, expected: str, what: str) -> None:
    check(xxh3_128_hexdigest(data) == expected, f"checksum of {what}")


def _read_tensor(extent: dict[str, Any], tensor: dict[str, Any], stored: bytes) -> bytes:
    size = math.prod(tensor["shape"]) * BITS[tensor["dtype"]] // 8
    check(size == tensor["size_bytes"], f"size of {tensor['name']}")
    if extent["codec"] == "raw":
        offset = tensor["offset_bytes"]
        return stored[offset : offset + size]
    check(extent["codec"] in ("exponent", "zstd"), f"codec {extent['codec']}")
    offset = tensor["stored_offset_bytes"]
    data = stored[offset : offset + tensor["stored_bytes"]]
    if tensor["coding"] == "raw":
        return data
    if tensor["coding"] == "zstd":
        check(extent["codec"] == "zstd", "zstd in an extent of another codec")
        return zstd_code.decode(data, tensor["dtype"], size)
    check(tensor["coding"] == "exponent", f"coding {tensor['coding']}")
    return exponent_code.decode(data, tensor["dtype"], size * 8 // BITS[tensor["dtype"]])


def _read_manifest(pack: Path) -> dict[str, Any]:
    text = (pack / "manifest.json").read_bytes()
    manifest: dict[str, Any] = json.loads(text)
    check(manifest["format"] == "trash-panda/pack", "format")
    check(manifest["version"] == 1 and manifest["required_features"] == [], "version")
    sealed = text[: text.rindex(b"\n", 0, text.rindex(b'"manifest_xxh3_128"')) + 1]
    check_sum(sealed, manifest["manifest_xxh3_128"], "manifest.json")
    return manifest


def read_pack(pack: Path) -> dict[str, PlainTensor]:
    """Every tensor of a pack, aliases included, decoded."""
    manifest = _read_manifest(pack)
    shards = [(pack / shard["name"]).read_bytes() for shard in manifest["shards"]]
    for shard, data in zip(manifest["shards"], shards, strict=True):
        check(len(data) == shard["size_bytes"], f"size of {shard['name']}")
        check_sum(data[: shard["header_bytes"]], shard["header_xxh3_128"], shard["name"])
    tensors: dict[str, PlainTensor] = {}
    for extent in manifest["extents"]:
        begin = extent["offset_bytes"]
        stored = shards[extent["shard"]][begin : begin + extent["stored_bytes"]]
        check_sum(stored, extent["xxh3_128"], extent["name"])
        for tensor in extent["tensors"]:
            data = _read_tensor(extent, tensor, stored)
            tensors[tensor["name"]] = PlainTensor(tensor["dtype"], tuple(tensor["shape"]), data)
    for alias, name in manifest["aliases"].items():
        tensors[alias] = tensors[name]
    return tensors


def read_source(pack: Path) -> tuple[dict[str, dict[str, str] | None], dict[str, Any] | None]:
    """The metadata of each file of the source; and its index, under its name, without its map."""
    manifest = _read_manifest(pack)
    metadata = {file["name"]: file.get("metadata") for file in manifest["source_files"]}
    if "source_index" not in manifest:
        return metadata, None
    index = manifest["source_index"]
    members = json.loads(index["members"])
    check(isinstance(members, dict) and "weight_map" not in members, "source_index")
    return metadata, {index["name"]: members}


def read_safetensors(path: Path) -> dict[str, PlainTensor]:
    """Every tensor of a safetensors file."""
    data = path.read_bytes()
    (header_bytes,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + header_bytes]).items():
        if name != "__metadata__":
            first, last = (8 + header_bytes + offset for offset in entry["data_offsets"])
            tensors[name] = PlainTensor(entry["dtype"], tuple(entry["shape"]), data[first:last])
    return tensors
