"""The exceptions, and which of them each error code of the engine becomes."""

from __future__ import annotations

from collections.abc import Iterable


class TrashPandaError(RuntimeError):
    """Any failure of this package; the subclasses say what a caller can do about it.

    `code` is the engine's error code ("corrupt"), `reason` its finer class ("truncated") or "",
    `hint` what helps, or "".
    """

    code: str = "failed"
    reason: str = ""
    hint: str = ""


class CheckpointError(TrashPandaError, ValueError):
    """A checkpoint or pack is missing, damaged, or does not belong to the model."""

    code = "corrupt"


class MissingTensorsError(CheckpointError):
    """The model has tensors that the pack has not. `names` lists them all."""

    code = "missing"

    def __init__(self, message: str, names: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.names: tuple[str, ...] = tuple(names)


class UnsupportedFormatError(TrashPandaError, NotImplementedError):
    """The input is sound, but of a kind that is not handled."""

    code = "unsupported"


class PlanError(TrashPandaError, ValueError):
    """A plan is damaged, or does not match the pack or the model."""

    code = "usage"


class DoesNotFitError(PlanError):
    """The budgets are too small: `needed` bytes were to fit in `budget` bytes.

    Both are None where there is no number, such as for a GPU that is not there.
    """

    code = "does_not_fit"

    def __init__(self, message: str, needed: int | None = None, budget: int | None = None) -> None:
        super().__init__(message)
        self.needed = needed
        self.budget = budget


class StalePlanError(PlanError):
    """A plan was made for another checkpoint than the pack."""

    code = "stale"


class IntegrityError(TrashPandaError):
    """Bytes differ from their checksum."""

    code = "mismatch"


class ReleasedError(TrashPandaError):
    """The model's weights were released by close()."""

    code = "usage"


class PinnedMemoryWarning(RuntimeWarning):
    """Less memory was pinned than asked for; streaming works, only slower."""


_CLASSES: dict[str, type[TrashPandaError]] = {
    "missing": CheckpointError,
    "corrupt": CheckpointError,
    "unsupported": UnsupportedFormatError,
    "does_not_fit": DoesNotFitError,
    "mismatch": IntegrityError,
    "stale": StalePlanError,
}


def make_error(  # noqa: PLR0917, as C++ passes no names.
    code: str,
    message: str,
    hint: str = "",
    reason: str = "",
    needed: int | None = None,
    budget: int | None = None,
) -> TrashPandaError:
    """Makes the exception for an error of the engine. Called by the native module."""
    error = _CLASSES.get(code, TrashPandaError)(f"{message} ({hint})" if hint else message)
    error.code = code
    error.hint = hint
    error.reason = reason
    if isinstance(error, DoesNotFitError):
        error.needed, error.budget = needed, budget
    return error
