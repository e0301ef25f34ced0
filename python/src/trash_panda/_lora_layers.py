"""Finds the layers of a model that an adapter is for."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from ._errors import CheckpointError, UnsupportedFormatError
from ._lora_files import LowRank
from ._names import uncompiled

_log = logging.getLogger("trash_panda")
_NAMES_SHOWN = 3
# Beginnings of names that say which model of a pipeline a layer is of: those of diffusers' parts,
# and kohya's, which join the parts of a path by "_", and so end with one.
_COMPONENTS = {"unet", "transformer", "transformer_2", "text_encoder", "text_encoder_2",
               "text_encoder_3", "diffusion_model"}  # fmt: skip
_KOHYA = ("lora_unet_", "lora_transformer_", "lora_te_", "lora_te1_", "lora_te2_", "lora_te3_")
# What adapters of a model with a head have before the names of its body.
_WRAPPERS = ("model.", "diffusion_model.", "transformer.")


@dataclass
class Adapted:
    """One layer and what is added to its weight."""

    path: str
    module: nn.Module
    part: LowRank
    is_transposed: bool  # Its weight is [in_features, out_features].

    @property
    def weight(self) -> Tensor:
        """What the layer holds now, which may be a placeholder."""
        weight = _weight(self.module)
        assert weight is not None
        return weight

    def delta_shape(self) -> tuple[int, ...]:
        """Of `up @ down`, as the layer's weight has it."""
        down, up = self.part.down, self.part.up
        if self.is_transposed:
            return (down.shape[1], up.shape[0])
        return (up.shape[0], *down.shape[1:])


def find_layers(model: nn.Module, parts: Sequence[LowRank], where: str) -> list[Adapted]:
    """Pairs each part with its layer.

    Parts of other models in a pipeline, which files name with a beginning of their own, are left
    out with a note. Raises CheckpointError when others find no layer or don't fit in shape.
    """
    modules = {uncompiled(path): m for path, m in model.named_modules() if _weight(m) is not None}
    flat = _flat_names(modules)
    found: list[Adapted] = []
    lost: list[str] = []
    components: set[str] = set()
    for part in parts:
        path = _find(part.layer, modules, flat)
        if path is None:
            lost.append(part.layer)
            continue
        components.add(_component(part.layer))
        found.append(_adapted(path, modules[path], part, where))
    others = [name for name in lost if _component(name) in {"", *components}]
    if others or not found:
        names = others or lost
        raise CheckpointError(
            f"{where} has {len(names)} parts for layers that {type(model).__name__} lacks: "
            f"{_some(names)}; is it an adapter of this model?"
        )
    if lost:
        _log.info("%s: %d parts are of other models: %s", where, len(lost), _some(lost))
    return found


def _weight(module: nn.Module) -> Tensor | None:
    return module._parameters.get("weight")


def _flat_names(paths: Iterable[str]) -> dict[str, str | None]:
    """Paths by their spelling with "_" for "."; None where two have the same."""
    flat: dict[str, str | None] = {}
    for path in paths:
        name = path.replace(".", "_")
        flat[name] = None if name in flat else path
    return flat


def _find(
    layer: str, modules: Mapping[str, nn.Module], flat: Mapping[str, str | None]
) -> str | None:
    """The path of a part's layer."""
    component = _component(layer)
    if component in _KOHYA:
        return flat.get(layer.removeprefix(component))
    name = layer.removeprefix("base_model.model.")
    inside = name.removeprefix(component + ".") if component else name
    spellings = [name, inside, *(inside.removeprefix(wrapper) for wrapper in _WRAPPERS)]
    return next((each for each in spellings if each in modules), None)


def _component(layer: str) -> str:
    """What says which model of a pipeline a layer is of; "" where nothing does."""
    for beginning in _KOHYA:
        if layer.startswith(beginning):
            return beginning
    first = layer.removeprefix("base_model.model.").partition(".")[0]
    return first if first in _COMPONENTS else ""


def _adapted(path: str, module: nn.Module, part: LowRank, where: str) -> Adapted:
    if isinstance(module, nn.Embedding):
        raise UnsupportedFormatError(f"{where} adapts the embedding {path}, which is not supported")
    is_transposed = type(module).__name__ == "Conv1D"  # transformers' own Linear of GPT-2.
    adapted = Adapted(path, module, part, is_transposed)
    weight = adapted.weight
    pointwise = tuple(part.up.shape[2:]) == (1,) * (weight.dim() - 2)
    ranks = (part.down.shape[0], part.up.shape[1]) if part.up.dim() == weight.dim() else (0, 1)
    if part.down.dim() != weight.dim() or not pointwise or ranks[0] != ranks[1]:
        shape: tuple[int, ...] | None = None
    else:
        shape = adapted.delta_shape()
    if shape != tuple(weight.shape):
        raise CheckpointError(
            f"{where}: {part.layer} has parts of {list(part.down.shape)} and "
            f"{list(part.up.shape)}, which don't make the {list(weight.shape)} of {path}"
        )
    return adapted


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
