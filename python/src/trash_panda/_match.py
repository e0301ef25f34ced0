"""Pairs a pack's tensors with a model's places, before anything of the model is touched."""

from __future__ import annotations

import fnmatch
import logging
import re
from collections.abc import Iterable, Sequence

from torch import nn

from ._bind_merges import bind_merges, place_merges
from ._bindings import Match, Stored
from ._errors import CheckpointError, MissingTensorsError
from ._keys import KeyMap, make_key_table
from ._names import NameMap, listed
from ._owners import find_blocks, in_extents
from ._pack import Pack, StoredTensor
from ._targets import Target, collect_targets

_log = logging.getLogger("trash_panda")
_NAMES_SHOWN = 5


def match_pack(
    model: nn.Module,
    pack: Pack,
    targets: Sequence[Target],
    *,
    strict: bool,
    ignore_missing: Iterable[str],
    key_map: KeyMap | None,
) -> Match:
    """Finds the stored tensor of every parameter and persistent buffer.

    Raises MissingTensorsError when some have none (unless not `strict`, or by `ignore_missing`
    globs), CheckpointError when shapes differ.
    """
    stored = {tensor.name: tensor for tensor in pack.tensors()}
    wanted = [target for target in targets if target.persistent]
    by_name = {name: target.tensor for target in wanted for name in target.names}
    sources = {**{name: name for name in stored}, **pack.aliases}
    table = make_key_table(model, sources, by_name, key_map)
    names = NameMap(table.renamed, list(by_name))
    bindings: dict[str, Stored] = {}
    merged = bind_merges(table, stored, wanted)
    made = {id(b.placeholder) for each in merged for b in each.bindings.values()}
    missing: list[Target] = []
    for target in wanted:
        if id(target.tensor) not in made and not _bind(target, names, stored, bindings):
            missing.append(target)
    _check_shapes(pack, bindings.values())
    _check_missing(model, pack, missing, strict=strict, ignore_missing=ignore_missing)
    base_merged, block_merged = place_merges(pack, merged)
    used = bindings.keys() | {source.name for each in merged for source in each.sources}
    return Match(
        base=in_extents(pack.base, bindings),
        base_merged=base_merged,
        blocks=find_blocks(model, pack, names, bindings, block_merged),
        missing=missing,
        unexpected=_unexpected(model, pack, stored.keys() - used),
    )


def missing_names(model: nn.Module, stored: Iterable[str], key_map: KeyMap | None) -> list[str]:
    """What the model needs and a checkpoint of these tensors lacks, ignored keys left out."""
    wanted = [target for target in collect_targets(model) if target.persistent]
    by_name = {name: target.tensor for target in wanted for name in target.names}
    table = make_key_table(model, {name: name for name in stored}, by_name, key_map)
    names = NameMap(table.renamed, list(by_name))
    ignored = _patterns(model, "_keys_to_ignore_on_load_missing")
    missing = [
        target
        for target in wanted
        if not any(names.find(name) for name in target.names)
        and not any(pattern.search(name) for pattern in ignored for name in target.names)
    ]
    made = {name for merge in table.merges for name in merge.targets()}
    return [name for target in missing for name in target.names if name not in made]


def _bind(
    target: Target,
    names: NameMap,
    stored: dict[str, StoredTensor],
    bindings: dict[str, Stored],
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
        binding = bindings.setdefault(chosen, Stored(target.tensor, stored=stored[chosen]))
        binding.places.append(place)
    return True


def _check_shapes(pack: Pack, bindings: Iterable[Stored]) -> None:
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
    ignored = [re.compile(fnmatch.translate(glob)) for glob in listed(ignore_missing)]
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


def _patterns(model: nn.Module, attribute: str) -> list[re.Pattern[str]]:
    return [re.compile(text) for text in getattr(model, attribute, None) or ()]


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
