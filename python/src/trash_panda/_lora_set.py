"""The adapters of one streaming model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ._errors import TrashPandaError
from ._lora import Lora, MergedWeight, SidePath, check_mergeable, merge
from ._lora_files import read_lora
from ._lora_layers import find_layers

if TYPE_CHECKING:
    import os

    from ._hooks import BlockStream

_MODES = ("merge", "side")


class LoraSet:
    """Adds, scales and removes adapters; without any, the model computes as it was loaded."""

    def __init__(self, model: nn.Module, stream: BlockStream) -> None:
        self._model = model
        self._stream = stream
        self._loras: dict[str, Lora] = {}
        self._hooks: dict[str, list[torch.utils.hooks.RemovableHandle]] = {}
        # Weights outside of blocks: what their modules held before anything was merged.
        self._originals: list[tuple[nn.Module, Tensor]] = []

    @property
    def scales(self) -> dict[str, float]:
        return {name: lora.scale for name, lora in self._loras.items()}

    @property
    def size_bytes(self) -> int:
        """Of the adapters, and of merged copies of weights outside of blocks."""
        adapters = sum(each.size_bytes for each in self._loras.values())
        return adapters + sum(original.nbytes for _, original in self._originals)

    def add(
        self,
        source: str | os.PathLike[str] | Mapping[str, Tensor],
        name: str,
        scale: float,
        mode: str,
    ) -> None:
        if mode not in _MODES:
            raise ValueError(f"mode is {mode!r}, not one of {', '.join(_MODES)}")
        _check_scale(scale)
        if name in self._loras:
            raise TrashPandaError(f"the model has an adapter {name!r} already; remove that first")
        where, parts = read_lora(source)
        parts = [part.to(self._stream.device) for part in parts]
        lora = Lora(name, find_layers(self._model, parts, where), scale, mode)
        sides = [SidePath(lora, each) for each in lora.layers] if mode == "side" else []
        for adapted in lora.layers if mode == "merge" else ():
            check_mergeable(adapted)
        with self._stream.paused():
            self._loras[name] = lora
            self._hooks[name] = [side.module.register_forward_hook(side) for side in sides]
            self.merge_all()

    def set_scale(self, name: str, scale: float) -> None:
        _check_scale(scale)
        with self._stream.paused():
            self._find(name).scale = scale
            self.merge_all()

    def remove(self, name: str) -> None:
        with self._stream.paused():
            self._find(name)
            self._drop(name)
            self.merge_all()

    def leave_base(self) -> None:
        """Puts back what was merged outside of blocks, until merge_all(). The stream is paused."""
        for module, original in self._originals:
            module._parameters["weight"] = original  # type: ignore[assignment]
        self._originals.clear()

    def clear(self) -> None:
        """Removes all. The stream is paused."""
        for name in list(self._loras):
            self._drop(name)
        self.merge_all()

    def _find(self, name: str) -> Lora:
        if name not in self._loras:
            known = ", ".join(self._loras) or "none"
            raise TrashPandaError(f"the model has no adapter {name!r}; it has {known}")
        return self._loras[name]

    def _drop(self, name: str) -> None:
        del self._loras[name]
        for handle in self._hooks.pop(name):
            handle.remove()

    def merge_all(self) -> None:
        """Tells blocks what is to be merged, and merges what lies outside. The stream is paused."""
        self.leave_base()
        merged: dict[int, MergedWeight] = {}
        for lora in self._loras.values():
            for adapted in lora.layers if lora.mode == "merge" and lora.scale != 0 else ():
                weight = merged.setdefault(id(adapted.module), MergedWeight(adapted.module))
                weight.added.append((adapted, lora.scale))
        for block in self._stream.blocks:
            inside = [each for each in merged.values() if block.holds(each.module)]
            block.adapt(inside)
            for each in inside:
                del merged[id(each.module)]
        if not self._stream.is_gpu_released:  # Else when its memory is taken again.
            for each in merged.values():
                self._merge_base(each)

    def _merge_base(self, weight: MergedWeight) -> None:
        original = weight.added[0][0].weight
        with torch.inference_mode(False), torch.no_grad():
            target = nn.Parameter(torch.empty_like(original), requires_grad=False)
            merge(original, weight.added, target)
        weight.module._parameters["weight"] = target
        self._originals.append((weight.module, original))


def _check_scale(scale: float) -> None:
    if not isinstance(scale, (int, float)) or not math.isfinite(scale):
        raise ValueError(f"scale is {scale!r}, not a number")
