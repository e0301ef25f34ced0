"""Pairs a pack's tensors with a model's places, before anything of the model is touched."""

from __future__ import annotations

import fnmatch
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from ._errors import CheckpointError, MissingTensorsError, PlanError
from ._names import NameMap
from ._pack import Extent, Pack, StoredTensor
from ._targets import Place, Target

_log = logging.getLogger("trash_panda")
_NAMES_SHOWN = 5


@dataclass
class Binding:
    """A stored tensor and the places of the model that get it."""

    stored: StoredTensor
    placeholder: Tensor  # The model's own tensor, usually on the meta device.
    places: list[Place] = field(default_factory=list)

    @property
    def is_buffer(self) -> bool:
        return self.places[0].is_buffer

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for place in self.places for name in place.names)

    def put(self, tensor: Tensor) -> None:
        """Sets the tensor at all places."""
        for place in self.places:
            place.put(tensor)


@dataclass
class Block:
    """A streamed block and the modules whose forward needs it."""

    index: int  # Of the pack's blocks.
    name: str
    bindings: list[Binding]
    triggers: list[nn.Module]
    # Whether one of the triggers is only a part of the block, so that a pass calls several.
    in_parts: bool


@dataclass
class Match:
    """How a pack's tensors go into a model."""

    base: list[Binding]
    blocks: list[Block]
    missing: list[Target]  # Allowed to be missing.
    unexpected: list[str]

    def bindings(self) -> Iterable[Binding]:
        yield from self.base
        for block in self.blocks:
            yield from block.bindings


def match_pack(
    model: nn.Module,
    pack: Pack,
    targets: Sequence[Target],
    *,
    strict: bool,
    ignore_missing: Iterable[str],
) -> Match:
    """Finds the stored tensor of every parameter and persistent buffer.

    Raises MissingTensorsError when some have none (unless not `strict`, or by `ignore_missing`
    globs), CheckpointError when shapes differ.
    """
    stored = {tensor.name: tensor for tensor in pack.tensors()}
    wanted = [target for target in targets if target.persistent]
    names = NameMap(
        stored.keys(), pack.aliases, [name for target in wanted for name in target.names]
    )
    bindings: dict[str, Binding] = {}
    missing: list[Target] = []
    for target in wanted:
        if not _bind(target, names, stored, bindings):
            missing.append(target)
    _check_shapes(pack, bindings.values())
    _check_missing(model, pack, missing, strict=strict, ignore_missing=ignore_missing)
    return Match(
        base=_in_extents(pack.base, bindings),
        blocks=_find_blocks(model, pack, names, bindings),
        missing=missing,
        unexpected=_unexpected(model, pack, stored.keys() - bindings.keys()),
    )


def _bind(
    target: Target,
    names: NameMap,
    stored: dict[str, StoredTensor],
    bindings: dict[str, Binding],
) -> bool:
    """Adds the target's places to the bindings of their stored tensors; False: there is none.

    The checkpoint has the last word on ties: a place gets what is stored under its own name, and
    what one of its tied names has when its own is not stored.
    """
    sources = [
        next((source for name in place.names if (source := names.find(name))), None)
        for place in target.places
    ]
    shared = next((source for source in sources if source), None)
    if shared is None:
        return False
    for place, source in zip(target.places, sources, strict=True):
        chosen = source or shared
        binding = bindings.setdefault(chosen, Binding(stored[chosen], target.tensor))
        binding.places.append(place)
    return True


def _check_shapes(pack: Pack, bindings: Iterable[Binding]) -> None:
    for binding in bindings:
        shape = tuple(binding.placeholder.shape)
        if binding.stored.shape != shape:
            raise CheckpointError(
                f"{pack.path}: tensor {binding.stored.name} has shape "
                f"{list(binding.stored.shape)}, the model's {binding.names[0]} has {list(shape)}; "
                "is it the checkpoint of this model, built from the same config?"
            )


def _check_missing(
    model: nn.Module,
    pack: Pack,
    missing: Sequence[Target],
    *,
    strict: bool,
    ignore_missing: Iterable[str],
) -> None:
    ignored = [re.compile(fnmatch.translate(glob)) for glob in ignore_missing]
    ignored += _patterns(model, "_keys_to_ignore_on_load_missing")
    names = [
        name
        for target in missing
        if not any(pattern.search(name) for pattern in ignored for name in target.names)
        for name in target.names
    ]
    if not names:
        return
    message = f"{pack.path} lacks {len(names)} tensors of {type(model).__name__}: {_some(names)}"
    if strict:
        raise MissingTensorsError(
            f"{message}; is it the checkpoint of this model? What may be missing goes into "
            "ignore_missing",
            names,
        )
    _log.warning("%s; they stay as they are in the model", message)


def _unexpected(model: nn.Module, pack: Pack, names: Iterable[str]) -> list[str]:
    ignored = _patterns(model, "_keys_to_ignore_on_load_unexpected")
    kept = sorted(n for n in names if not any(pattern.search(n) for pattern in ignored))
    if kept:
        _log.warning(
            "%s has %d tensors that %s does not use: %s",
            pack.path,
            len(kept),
            type(model).__name__,
            _some(kept),
        )
    return kept


def _in_extents(extents: Iterable[Extent], bindings: dict[str, Binding]) -> list[Binding]:
    return [
        bindings[tensor.name]
        for extent in extents
        for tensor in extent.tensors
        if tensor.name in bindings
    ]


def _find_blocks(
    model: nn.Module, pack: Pack, names: NameMap, bindings: dict[str, Binding]
) -> list[Block]:
    modules = dict(model.named_modules(remove_duplicate=False))
    paths = {id(module): path for path, module in reversed(modules.items())}
    blocks = []
    for index, extent in enumerate(pack.blocks):
        held = _in_extents([extent], bindings)
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
        blocks.append(Block(index, extent.name, held, triggers, in_parts))
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


def _patterns(model: nn.Module, attribute: str) -> list[re.Pattern[str]]:
    return [re.compile(text) for text in getattr(model, attribute, None) or ()]


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
