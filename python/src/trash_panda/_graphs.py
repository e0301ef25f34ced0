"""Keeps torch.compile out of the hooks: they run as Python between its graphs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any


def outside_of_graphs(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook, which the compiler neither looks into nor compiles.

    torch.compiler.disable() says the same, but imports the compiler, which takes seconds: here
    that is left to whoever compiles something.
    """
    disabled: Callable[..., Any] | None = None

    @functools.wraps(hook)
    def inner(*args: Any) -> Any:
        nonlocal disabled
        if disabled is None:
            if "torch._dynamo" not in sys.modules:
                return hook(*args)
            import torch

            disabled = torch.compiler.disable(hook)  # type: ignore[no-untyped-call]
        return disabled(*args)

    # What the compiler asks of a function before it would trace into it.
    inner._torchdynamo_disable = True  # type: ignore[attr-defined]
    return inner
