"""The tensors that a model wants, with every name and every place that holds them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from torch import Tensor, nn

from ._names import uncompiled


@dataclass(frozen=True)
class Place:
    """Where a module keeps a tensor: `module._parameters[attribute]`, or `_buffers`."""

    module: nn.Module
    attribute: str
    is_buffer: bool
    names: tuple[str, ...]  # More than one where the module itself is shared.

    def holder(self) -> dict[str, Tensor | None]:
        """The dictionary that the module looks the tensor up in."""
        return self.module._buffers if self.is_buffer else self.module._parameters  # type: ignore[return-value]

    def get(self) -> Tensor:
        tensor = self.holder()[self.attribute]
        assert tensor is not None
        return tensor

    def put(self, tensor: Tensor) -> None:
        self.holder()[self.attribute] = tensor
        refresh(self.module)


def refresh(module: nn.Module) -> None:
    """Lets an RNN see which weights it has: it keeps a list of them from its last forward."""
    if isinstance(module, nn.RNNBase):
        weights = [getattr(module, name, None) for name in module._flat_weights_names]
        module._flat_weights = weights
        # By these it knows that it has to make the list again.
        module._flat_weight_refs = [None if w is None else weakref.ref(w) for w in weights]


@dataclass
class Target:
    """One tensor of a model. Tied parameters are one target with several places."""

    tensor: Tensor
    persistent: bool
    places: list[Place] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for place in self.places for name in place.names)

    @property
    def is_buffer(self) -> bool:
        return self.places[0].is_buffer


def collect_targets(model: nn.Module) -> list[Target]:
    """Lists a model's tensors in the order of its modules.

    Two places belong together when they hold the very same tensor object: that is how modules say
    that weights are tied, on the meta device too, where there is no storage to compare.
    """
    names: dict[tuple[int, str], list[str]] = {}
    modules: dict[int, nn.Module] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        modules[id(module)] = module
        for attribute in (*module._parameters, *module._buffers):
            dotted = uncompiled(f"{path}.{attribute}" if path else attribute)
            names.setdefault((id(module), attribute), []).append(dotted)

    targets: dict[int, Target] = {}
    for (module_id, attribute), dotted_names in names.items():
        module = modules[module_id]
        is_buffer = attribute in module._buffers
        place = Place(module, attribute, is_buffer, tuple(dotted_names))
        tensor = place.holder()[attribute]
        if tensor is None:
            continue
        persistent = not (is_buffer and attribute in module._non_persistent_buffers_set)
        target = targets.setdefault(id(tensor), Target(tensor, persistent))
        target.places.append(place)
        target.persistent |= persistent
    return list(targets.values())
