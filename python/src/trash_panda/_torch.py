"""Torch on demand: the package imports without it."""

from __future__ import annotations

import importlib.util
import sys


def require_torch() -> None:
    """Raises ImportError with the command to run when torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise ImportError(
            "trash_panda.load() needs PyTorch, 2.11 or newer, which is not installed for "
            f"{sys.executable}; run: {sys.executable} -m pip install torch"
        )
