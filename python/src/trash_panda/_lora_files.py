"""Reads low-rank adapters as PEFT, diffusers and kohya's scripts write them."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ._errors import CheckpointError, UnsupportedFormatError, make_error

_NAMES_SHOWN = 3
# Of a folder, likeliest first.
_FILE_NAMES = ("adapter_model.safetensors", "pytorch_lora_weights.safetensors")
_CONFIG_NAME = "adapter_config.json"
# What diffusers writes into a file's metadata: settings by component, "transformer.lora_alpha".
_METADATA_KEY = "lora_adapter_metadata"
# Settings of PEFT that make more than a product of two matrices.
_OTHER_KINDS = ("use_dora", "lora_bias", "modules_to_save", "target_parameters")
# "…q_proj.lora_A.weight", also with an adapter's name before ".weight"; "….lora_down.weight".
_PART = re.compile(r"(?P<layer>.+)\.lora_(?P<part>A|B|down|up)(?:\.\w+)?\.weight")
_ALPHA = re.compile(r"(?P<layer>.+)\.alpha")


@dataclass
class LowRank:
    """What an adapter adds to one layer's weight: `scale * up @ down`."""

    layer: str  # As the file calls it.
    down: Tensor  # [rank, in_features], of convolutions [rank, in_channels, *kernel].
    up: Tensor  # [out_features, rank], of convolutions [out_channels, rank, 1, 1].
    scale: float  # alpha / rank.

    def to(self, device: torch.device) -> LowRank:
        return replace(self, down=self.down.to(device), up=self.up.to(device))


@dataclass
class _Settings:
    """Of a PEFT adapter_config.json, as far as it tells how weights are made."""

    values: Mapping[str, Any] = field(default_factory=dict)

    def scale(self, layer: str, rank: int) -> float | None:
        """None where nothing is said."""
        alpha = self.values.get("lora_alpha")
        for pattern, value in (self.values.get("alpha_pattern") or {}).items():
            if re.fullmatch(rf"(.*\.)?({pattern})", layer):
                alpha = value
                break
        if alpha is None:
            return None
        return float(alpha) / (math.sqrt(rank) if self.values.get("use_rslora") else rank)

    def refuse_other_kinds(self, where: str) -> None:
        kind = str(self.values.get("peft_type", "LORA")).rpartition(".")[2]
        wrong = [] if kind == "LORA" else [f"peft_type {kind}"]
        wrong += [name for name in _OTHER_KINDS if self.values.get(name)]
        if str(self.values.get("bias", "none")) != "none":
            wrong.append(f"bias {self.values['bias']}")
        if wrong:
            raise UnsupportedFormatError(
                f"{where} is no plain LoRA ({', '.join(wrong)}); merge it into the checkpoint with "
                "the library that made it, and pack the result"
            )


def read_lora(source: str | os.PathLike[str] | Mapping[str, Tensor]) -> tuple[str, list[LowRank]]:
    """The adapter's parts, in the order of their names, and what to call it in messages.

    :param source: a file, a folder that PEFT or diffusers wrote, or tensors by name.
    :raises CheckpointError: not there, damaged, or parts without their counterparts.
    :raises UnsupportedFormatError: another kind of adapter than LoRA.
    """
    if isinstance(source, Mapping):
        return "the adapter", _parts("the adapter", source, _Settings(), {})
    file = _find_file(Path(source))
    tensors, metadata = _read_tensors(file)
    settings = _read_settings(file.with_name(_CONFIG_NAME))
    settings.refuse_other_kinds(str(file))
    return str(file), _parts(str(file), tensors, settings, _component_settings(file, metadata))


def _find_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [path / name for name in _FILE_NAMES if (path / name).is_file()]
    found = found or sorted(path.glob("*.safetensors"))
    if len(found) != 1:
        raise make_error(
            "missing",
            f"{path} has {len(found) or 'no'} safetensors files, and one is to be the adapter",
            "give the file",
        )
    return found[0]


def _read_tensors(file: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise CheckpointError(
            f"{file}: adapters are read by safetensors, which is not installed: pip install "
            "safetensors, or give the tensors by name"
        ) from error
    try:
        with safe_open(file, framework="pt") as reader:
            tensors = {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118
            return tensors, dict(reader.metadata() or {})
    except FileNotFoundError as error:
        raise make_error("missing", f"there is no adapter {file}") from error
    except Exception as error:  # Its own class is no part of its interface.
        raise CheckpointError(f"can't read adapter {file}: {error}") from error


def _read_settings(file: Path) -> _Settings:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return _Settings()
    except (OSError, ValueError) as error:
        raise CheckpointError(f"can't read {file}: {error}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"{file} holds no JSON object")
    return _Settings(values)


def _component_settings(file: Path, metadata: Mapping[str, str]) -> dict[str, _Settings]:
    """Settings by the component that a layer's name begins with, from the file's metadata."""
    try:
        flat = json.loads(metadata.get(_METADATA_KEY, "{}"))
    except ValueError as error:
        raise CheckpointError(f"{file}: its {_METADATA_KEY} is no JSON: {error}") from error
    found: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        component, _, name = key.partition(".")
        found.setdefault(component, {})[name] = value
    result = {component: _Settings(values) for component, values in found.items()}
    for settings in result.values():
        settings.refuse_other_kinds(str(file))
    return result


def _parts(
    where: str,
    tensors: Mapping[str, Tensor],
    settings: _Settings,
    components: Mapping[str, _Settings],
) -> list[LowRank]:
    downs: dict[str, Tensor] = {}
    ups: dict[str, Tensor] = {}
    alphas: dict[str, float] = {}
    strange = []
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.is_meta:
            kind = "on the meta device" if tensor.is_meta else f"of {tensor.dtype}"
            raise UnsupportedFormatError(f"{where}: {name} is {kind}; halves of a LoRA are floats")
        if part := _PART.fullmatch(name):
            half = downs if part["part"] in ("A", "down") else ups
            if half.setdefault(part["layer"], tensor) is not tensor:
                raise CheckpointError(f"{where} has two tensors like {name}")
        elif alpha := _ALPHA.fullmatch(name):
            if tensor.numel() != 1:
                raise CheckpointError(f"{where}: {name} has {tensor.numel()} values, and needs one")
            alphas[alpha["layer"]] = float(tensor)
        else:
            strange.append(name)
    if strange:
        raise UnsupportedFormatError(
            f"{where} holds {len(strange)} tensors that are no part of a plain LoRA: "
            f"{_some(strange)}; merge it into the checkpoint with the library that made it"
        )
    single = sorted((downs.keys() ^ ups.keys()) | (alphas.keys() - downs.keys()))
    if single or not downs:
        raise CheckpointError(
            f"{where} lacks one half of {_some(single)}" if single else f"{where} has no tensors"
        )
    result = []
    for layer in sorted(downs):
        rank = downs[layer].shape[0]
        said = components.get(layer.partition(".")[0], settings).scale(layer, rank)
        scale = alphas[layer] / rank if layer in alphas else said
        result.append(LowRank(layer, downs[layer], ups[layer], 1.0 if scale is None else scale))
    return result


def _some(names: list[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
