"""The modules whose forward needs a block of the pack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import nn

from ._bindings import Binding, Block, Merged, Stored
from ._errors import PlanError
from ._names import NameMap
from ._pack import Extent, Pack


def in_extents(extents: Iterable[Extent], bindings: dict[str, Stored]) -> list[Stored]:
    """The bindings of the extents' tensors, in their order."""
    return [
        bindings[tensor.name]
        for extent in extents
        for tensor in extent.tensors
        if tensor.name in bindings
    ]


def find_blocks(
    model: nn.Module,
    pack: Pack,
    names: NameMap,
    bindings: dict[str, Stored],
    merged: dict[int, list[Merged]],
) -> list[Block]:
    """The blocks that hold something of the model. Raises PlanError where one has no module."""
    modules = dict(model.named_modules(remove_duplicate=False))
    paths = {id(module): path for path, module in reversed(modules.items())}
    blocks = []
    for index, extent in enumerate(pack.blocks):
        stored = in_extents([extent], bindings)
        made = merged.get(index, [])
        held = [*stored, *(b for each in made for b in each.bindings.values())]
        if not held:
            continue
        owners = _owners(names.module_paths(extent.name), held, modules, paths)
        if any(module is model for module in owners):
            raise PlanError(
                f"{pack.path}: block {extent.name} holds {held[0].names[0]}, which belongs to no "
                f"module inside {type(model).__name__}; plan it again without that group"
            )
        triggers = [part for module in owners for part in _called_parts(module)]
        in_parts = len(triggers) > len(owners)
        blocks.append(Block(index, extent.name, stored, made, triggers, in_parts))
    return blocks


def _called_parts(module: nn.Module) -> list[nn.Module]:
    """The module itself, or what is called in its stead where it is a mere container."""
    if type(module).forward is not nn.Module.forward:
        return [module]
    return [part for child in module.children() for part in _called_parts(child)]


def _owners(
    candidates: Sequence[str],
    held: Sequence[Binding],
    modules: dict[str, nn.Module],
    paths: dict[int, str],
) -> list[nn.Module]:
    """The block's own module, and those elsewhere that share one of its tensors."""
    owners = [paths[id(place.module)] for binding in held for place in binding.places]
    inside = [paths[id(binding.places[0].module)] for binding in held]
    path = next(
        (
            candidate
            for candidate in candidates
            if candidate in modules and all(_is_within(owner, candidate) for owner in inside)
        ),
        None,
    )
    if path is None:
        path = _common_path(inside)
    outside = dict.fromkeys(owner for owner in owners if not _is_within(owner, path))
    return [modules[path], *(modules[owner] for owner in outside)]


def _is_within(path: str, ancestor: str) -> bool:
    return path == ancestor or path.startswith(ancestor + ".")


def _common_path(paths: Sequence[str]) -> str:
    split = [path.split(".") for path in paths]
    common: list[str] = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common)
