"""Compares what a pack holds with what a case expects, and says where they differ."""

import dataclasses
import hashlib

from number_formats import from_bits, is_nan
from pack_values import Pack, Tensor

# Of dtypes without a scale these keep every bit, the payload of a NaN too.
_EXACT = ("F16", "BF16", "F32")
_MARKER = "scaled_fp8"


def _same(got: int, wanted: int, rtol: float, exact: bool) -> bool:
    if got == wanted:
        return True
    if exact or is_nan(got) or is_nan(wanted):
        return not exact and is_nan(got) and is_nan(wanted)
    return rtol > 0 and abs(from_bits(got) - from_bits(wanted)) <= rtol * abs(from_bits(wanted))


def _difference(name: str, got: Tensor, wanted: Tensor, rtol: float) -> str | None:
    if got.shape != wanted.shape:
        return f"{name} has shape {list(got.shape)}, expected {list(wanted.shape)}"
    if wanted.dtype != "F32":  # Integers: as they are stored.
        same = got.scale is None and (got.dtype, got.data) == (wanted.dtype, wanted.data)
        return None if same else f"{name} ({got.dtype}) is not the expected {wanted.dtype}"
    if not got.is_float:
        return f"{name} is stored as {got.dtype}, expected a float"
    exact = rtol == 0 and got.scale is None and got.dtype in _EXACT
    for place, (value, target) in enumerate(zip(got.values(), wanted.values(), strict=True)):
        if not _same(value, target, rtol, exact):
            return (
                f"{name}[{place}] is {from_bits(value).hex()} (0x{value:08x}), "
                f"expected {from_bits(target).hex()} (0x{target:08x})"
            )
    return None


def _raw_difference(name: str, got: Tensor, wanted: dict) -> str | None:
    found = {
        "dtype": got.dtype,
        "shape": list(got.shape),
        "sha256": hashlib.sha256(got.data).hexdigest(),
    }
    return None if found == wanted else f"{name} is {found}, expected {wanted}"


def differences(
    got: Pack, wanted: dict[str, Tensor], raw: dict[str, dict], rtol: float
) -> list[str]:
    """Where the parameters of a pack differ from the expected ones.

    `raw`: by name, dtype, shape and SHA-256 of tensors whose bytes are expected, not their values.
    """
    found = [f"{name} is not expected" for name in got.parameters if name not in {*wanted, *raw}]
    for name in [*wanted, *raw]:
        tensor = got.parameters.get(got.aliases.get(name, name))
        if tensor is None:
            difference = f"{name} is missing"
        elif name in raw:
            difference = _raw_difference(name, tensor, raw[name])
        else:
            difference = _difference(name, tensor, wanted[name], rtol)
        if difference:
            found.append(difference)
    return found


def byte_differences(got: Pack, source: dict[str, Tensor]) -> list[str]:
    """Where a pack lacks bytes of the checkpoint that it was made from, or has others."""
    found = []
    # Markers say something about the file, and are no part of the model.
    left = {name: tensor for name, tensor in source.items() if not name.endswith(_MARKER)}
    for name, tensor in got.parameters.items():
        if left.pop(name, None) != dataclasses.replace(tensor, scale=None, scale_values=None):
            found.append(f"{name} is not as the checkpoint has it")
        if tensor.scale:
            left.pop(tensor.scale["source_name"], None)
    return found + [f"{name} is missing" for name in left]
