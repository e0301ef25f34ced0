"""Reads what was packed back: by docs/pack_format.md alone, not by the program's own reader."""

import dataclasses
import json
import math
import pathlib
import struct
from collections.abc import Iterator

from number_formats import FLOATS, decode, multiply


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor as it is stored, with its scale; its values as F32 bits where it is of floats."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    scale: dict | None = None  # The manifest's remark; None where there is no scale.
    scale_values: "Tensor | None" = None

    def values(self) -> list[int]:
        values = decode(self.dtype, self.data)
        if self.scale is None or self.scale_values is None:
            return values
        factors = self.scale_values.values()
        places = _scale_places(self.shape, self.scale, self.scale_values.shape)
        return [multiply(value, factors[at]) for value, at in zip(values, places, strict=True)]

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


def _scale_places(
    shape: tuple[int, ...], scale: dict, scale_shape: tuple[int, ...]
) -> Iterator[int]:
    """Of each element of a weight, row-major: the position of its factor in the scale."""
    if scale["granularity"] == "tensor":
        if scale_shape:
            raise ValueError(f"a scale per tensor has shape {scale_shape}, not []")
        yield from (0 for _ in range(math.prod(shape)))
        return
    if len(scale_shape) != len(shape):
        raise ValueError(f"scale {scale_shape} has another rank than its weight {shape}")
    tile = [1] * (len(shape) - 2) + list(scale.get("block_shape", [1, 1]))
    for flat in range(math.prod(shape)):
        rest, place, stride = flat, 0, 1
        for axis in reversed(range(len(shape))):
            rest, position = divmod(rest, shape[axis])
            if scale["granularity"] == "block":
                position //= tile[axis]
            elif scale_shape[axis] == 1:
                position = 0
            if position >= scale_shape[axis]:
                raise ValueError(f"scale {scale_shape} is smaller than its weight {shape}")
            place += position * stride
            stride *= scale_shape[axis]
        yield place


def read_safetensors(path: pathlib.Path) -> dict[str, Tensor]:
    data = path.read_bytes()
    (header_bytes,) = struct.unpack("<Q", data[:8])
    begin = 8 + header_bytes
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        # The reference takes an array of the three as well.
        keys = ("dtype", "shape", "data_offsets")
        dtype, shape, (first, last) = entry if isinstance(entry, list) else map(entry.get, keys)
        tensors[name] = Tensor(dtype, tuple(shape), data[begin + first : begin + last])
    return tensors


def _stored_tensors(folder: pathlib.Path, manifest: dict) -> dict[str, Tensor]:
    """Every tensor of every extent, from the bytes of the shards; both tables must agree."""
    headers = [read_safetensors(folder / shard["name"]) for shard in manifest["shards"]]
    stored: dict[str, Tensor] = {}
    for extent in manifest["extents"]:
        for entry in extent["tensors"]:
            name = entry["name"]
            if name in stored:
                raise ValueError(f"tensor {name} is in two places of the pack")
            tensor = headers[extent["shard"]].pop(name)
            if (tensor.dtype, list(tensor.shape)) != (entry["dtype"], entry["shape"]):
                raise ValueError(f"tensor {name} differs between manifest and shard")
            stored[name] = tensor
    left = [name for header in headers for name in header if not name.startswith("__pad__.")]
    if left:
        raise ValueError(f"tensors of the shards that the manifest lacks: {left}")
    return stored


@dataclasses.dataclass(frozen=True)
class Pack:
    parameters: dict[str, Tensor]  # Scales belong to their weights and are none.
    aliases: dict[str, str]  # Tied name to the name of a parameter.


def read_pack(folder: pathlib.Path) -> Pack:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    stored = _stored_tensors(folder, manifest)
    parameters: dict[str, Tensor] = {}
    for extent in manifest["extents"]:
        for entry in extent["tensors"]:
            name = entry["name"]
            if entry.get("role") == "scale":
                continue
            scale = entry.get("scale")
            scale_values = stored[f"{name}_scale"] if scale else None
            parameters[name] = dataclasses.replace(
                stored[name], scale=scale, scale_values=scale_values
            )
    return Pack(parameters, manifest["aliases"])
