"""Keeps torch.compile out of the hooks: they run as Python between its graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def outside_of_graphs(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, which the compiler neither looks into nor compiles.

    torch.compiler.disable() says the same, but imports the compiler, which takes seconds, and costs
    microseconds of each call: both are left to calls from compiled code, which take the branch that
    they took while they were traced.
    """
    disabled: Callable[..., Any] | None = None

    @functools.wraps(hook)
    def inner(*args: Any) -> Any:
        nonlocal disabled
        if not torch.compiler.is_compiling():
            return hook(*args)
        if disabled is None:
            disabled = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
        return disabled(*args)

    # What the compiler asks of a function before it would trace into it.
    inner._torchdynamo_disable = True  # type: ignore[attr-defined]
    return inner
