"""Sizes and dtypes as people write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _native

if TYPE_CHECKING:
    import torch
    from torch import nn

_DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
    "half": "float16",
    "fp32": "float32",
    "float32": "float32",
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "float8_e4m3fn": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "float8_e5m2": "float8_e5m2",
}
_AS_STORED = ("", "auto", "none", "keep")


def parse_bytes(value: float | str | None) -> int | None:
    """A size in bytes: of "9GB" (decimal), "8GiB", "1.5e9", or of a number; None of None.

    Raises ValueError for other text, and for less than nothing.
    """
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return _native.parse_bytes(value)
        except RuntimeError as error:
            try:
                value = float(value)
            except ValueError:
                raise ValueError(str(error)) from error
    if not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is no size in bytes")
    return int(value)


def parse_dtype(value: str | torch.dtype | None) -> torch.dtype | None:
    """The torch dtype of "bf16", "fp16", "fp32", "fp8"; None of None, "auto" and "keep".

    Raises ValueError for other names.
    """
    import torch

    if value is None or isinstance(value, torch.dtype):
        return value
    name = known_dtype(value)
    found: torch.dtype | None = None if name is None else getattr(torch, name)
    return found


def known_dtype(value: str) -> str | None:
    """What torch calls the dtype that parse_dtype() gives, without asking torch."""
    name = str(value).strip().lower()
    if name in _AS_STORED:
        return None
    if name not in _DTYPES:
        known = ", ".join(sorted(_DTYPES))
        raise ValueError(f"{value!r} is no dtype that is known here ({known}, auto)")
    return _DTYPES[name]


def module_nbytes(module: nn.Module) -> int:
    """Bytes of a module's parameters and buffers in their own dtypes, tied ones once.

    On the meta device too.
    """
    tensors = {id(t): t for t in (*module.parameters(), *module.buffers())}
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def format_bytes(size: float) -> str:
    """ "1.5 GB", in decimal units."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
