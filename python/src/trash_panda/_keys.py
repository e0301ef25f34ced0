"""What the keys of a checkpoint are called in a model, by the user's word and by its library's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ._errors import UnsupportedFormatError
from ._merge import Merge

# A dictionary of those keys that differ, or a function; None drops the tensor.
KeyMap = Mapping[str, "str | None"] | Callable[[str], "str | None"]


@dataclass
class KeyTable:
    """Where a model's tensors come from. Names of the model on the left, of the pack on the right.

    Names that the model lacks are listed too: what they miss may only be a prefix.
    """

    renamed: dict[str, str] = field(default_factory=dict)
    merges: list[Merge] = field(default_factory=list)


def make_key_table(
    model: nn.Module,
    sources: Mapping[str, str],
    wanted: dict[str, Tensor],
    key_map: KeyMap | None,
) -> KeyTable:
    """Translates the keys of `sources`, whose values are the stored tensors' names.

    A model of transformers gets its class's own conversions, as from_pretrained() applies them.
    `wanted` has the tensors of the model's state_dict.
    """
    mapped = _mapped(sources, key_map)
    if _is_transformers(model):
        return _transformers_table(model, mapped, wanted)
    fix = getattr(model, "_fix_state_dict_keys_on_load", None)
    if callable(fix):
        fix(mapped)  # diffusers: renames keys of old checkpoints, and asks for no values.
    return KeyTable(renamed=mapped)


def _mapped(sources: Mapping[str, str], key_map: KeyMap | None) -> dict[str, str]:
    if key_map is None:
        return dict(sources)
    rename = key_map if callable(key_map) else lambda key: key_map.get(key, key)
    mapped: dict[str, str] = {}
    for key, stored in sources.items():
        name = rename(key)
        if name is None:
            continue
        if not isinstance(name, str):
            raise TypeError(f"key_map gave {name!r} for {key}; it gives a name, or None to drop it")
        if mapped.setdefault(name, stored) != stored:
            raise ValueError(f"key_map calls both {mapped[name]} and {stored} {name}")
    return mapped


def _is_transformers(model: nn.Module) -> bool:
    library = sys.modules.get("transformers")
    return library is not None and isinstance(model, library.PreTrainedModel)


def _transformers_table(
    model: nn.Module, sources: Mapping[str, str], wanted: dict[str, Tensor]
) -> KeyTable:
    loading, mapping = _transformers_conversions(model)
    if loading is None:
        return KeyTable(renamed=dict(sources))
    converters = [each for each in mapping if isinstance(each, loading.WeightConverter)]
    renamings = [each for each in mapping if not isinstance(each, loading.WeightConverter)]
    prefix = getattr(model, "base_model_prefix", "")
    table = KeyTable()
    merges: dict[str, Merge] = {}
    # Experts are stacked in the order of this key.
    for key in sorted(sources, key=loading.dot_natural_key):
        name, pattern = loading.rename_source_key(key, renamings, converters, prefix, wanted)
        if name not in wanted and key in wanted:
            # Its name is the model's already; no conversion was meant for it.
            name, pattern = key, None
        if pattern is None or name not in wanted:
            table.renamed.setdefault(name if name in wanted else key, sources[key])
            continue
        if name not in merges:
            converter = next(each for each in converters if pattern in each.source_patterns)
            merges[name] = Merge(model, converter, name)
        merges[name].add(pattern, sources[key])
    table.merges = list(merges.values())
    _check_shared(table.merges)
    return table


def _transformers_conversions(model: Any) -> tuple[Any, list[Any]]:
    """The library's module of conversions, and those of the model; (None, []) before 5.0."""
    try:
        from transformers import conversion_mapping, core_model_loading
    except ImportError:
        return None, []
    return core_model_loading, list(conversion_mapping.get_model_conversion_mapping(model))


def _check_shared(merges: Iterable[Merge]) -> None:
    seen: dict[str, Merge] = {}
    for merge in merges:
        for source in merge.sources:
            if seen.setdefault(source, merge) is not merge:
                raise UnsupportedFormatError(
                    f"tensor {source} goes into both {merge.name} and {seen[source].name} of the "
                    f"model ({merge}), which streaming can't do"
                )
