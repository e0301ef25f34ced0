"""Names of a checkpoint against names of a model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

# Prefixes are guessed from this many names at either end of a list: enough to meet both a model's
# body and its head.
_SAMPLE_COUNT = 8


def listed(names: str | Iterable[str]) -> tuple[str, ...]:
    """One name or several. A text is one of them, not its letters."""
    return (names,) if isinstance(names, str) else tuple(names)


def uncompiled(path: str) -> str:
    """The path without the wrappers that torch.compile(module) puts around modules."""
    return path.replace("_orig_mod.", "")


class NameMap:
    """Finds the stored tensor for a name of the model.

    `stored` has the stored tensor of each name that a checkpoint knows it by, tied aliases among
    them. Where one side lacks a prefix that the other has (a bare `BertModel` against `bert.` of a
    checkpoint with a head, or `model.` of a causal language model), that one prefix is added or
    removed, as transformers does.
    """

    def __init__(self, stored: Mapping[str, str], wanted: Sequence[str]) -> None:
        self._source = dict(stored)
        self.added, self.removed = self._choose_prefix(wanted)

    def find(self, name: str) -> str | None:
        """The name of the stored tensor, or None."""
        for spelling in self._spellings(name):
            if spelling in self._source:
                return self._source[spelling]
        return None

    def module_paths(self, block_name: str) -> list[str]:
        """Where a block of the pack may be in the model, likeliest first."""
        paths = [block_name]
        if self.added and block_name.startswith(self.added):
            paths.append(block_name.removeprefix(self.added))
        if self.removed:
            paths.append(self.removed + block_name)
        return paths

    def _spellings(self, name: str) -> list[str]:
        spellings = [name]
        if self.added:
            spellings.append(self.added + name)
        if self.removed and name.startswith(self.removed):
            spellings.append(name.removeprefix(self.removed))
        return spellings

    def _choose_prefix(self, wanted: Sequence[str]) -> tuple[str, str]:
        """The prefix to add to the model's names, and the one to remove; one of them is ""."""
        known = self._source.keys()
        adds = _heads(sample=wanted, longer=known)
        removes = _heads(sample=list(known), longer=wanted)
        scored = [(sum(p + name in known for name in wanted), p, "") for p in adds]
        scored += [
            (sum(n.startswith(p) and n.removeprefix(p) in known for n in wanted), "", p)
            for p in removes
        ]
        scored.sort(key=lambda entry: entry[0], reverse=True)
        best = sum(name in known for name in wanted)
        if not scored or scored[0][0] <= best:
            return "", ""
        if len(scored) > 1 and scored[1][0] == scored[0][0]:
            return "", ""  # Two parts of the checkpoint fit equally well: not ours to choose.
        return scored[0][1], scored[0][2]


def _heads(sample: Sequence[str], longer: Collection[str]) -> set[str]:
    """What stands before a name of `sample` in names of `longer`, with its full stop."""
    some = {*sample[:_SAMPLE_COUNT], *sample[-_SAMPLE_COUNT:]}
    return {
        name.removesuffix(tail) for tail in some for name in longer if name.endswith("." + tail)
    }
