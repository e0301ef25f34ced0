"""Dtypes by safetensors' names, and which one each tensor gets."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch
from torch import nn

from . import _native
from ._errors import UnsupportedFormatError
from ._pack import StoredTensor

# Of a plan and of load(): how it is spelled there → safetensors' name; "keep" leaves weights as
# they are stored.
_COMPUTE = {"bf16": "BF16", "fp16": "F16", "fp32": "F32", "keep": None}
_COMPUTE_TORCH = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
_PLAIN_FLOATS = {"BF16", "F16", "F32", "F64"}
_TORCH = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
}


def compute_dtype_name(wanted: str | torch.dtype) -> str | None:
    """Safetensors' name of a compute dtype; None stands for "keep".

    Raises ValueError for any other text or dtype.
    """
    if isinstance(wanted, torch.dtype):
        if wanted in _COMPUTE_TORCH:
            return _COMPUTE_TORCH[wanted]
    elif wanted in _COMPUTE:
        return _COMPUTE[wanted]
    raise ValueError(
        f"compute_dtype is {wanted!r}, not one of {', '.join(_COMPUTE)} or torch's bfloat16, "
        "float16, float32"
    )


def plan_dtype_name(name: str | None) -> str:
    """How a plan spells what compute_dtype_name() gave."""
    return next(spelled for spelled, known in _COMPUTE.items() if known == name)


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a safetensors name. Raises UnsupportedFormatError where torch has none."""
    if name not in _TORCH:
        raise UnsupportedFormatError(f"tensors of dtype {name} can't be given to a module")
    return _TORCH[name]


def safetensors_dtype(dtype: torch.dtype) -> str:
    """Safetensors' name of a torch dtype. Raises UnsupportedFormatError where there is none."""
    for name, known in _TORCH.items():
        if known == dtype:
            return name
    raise UnsupportedFormatError(f"safetensors has no dtype for {dtype}")


class DtypeRule:
    """Decides in which dtype a stored tensor is handed to the model.

    Weights get the compute dtype. A stored buffer gets the dtype that the model declares for it, as
    load_state_dict() has it: it was made for that (rotary tables, router biases). Modules that
    their library keeps in fp32 stay so. Integers are never touched. With "keep" only fp8 weights
    change, to the dtype that the model declares, since nothing computes with them as they are.
    """

    def __init__(self, model: nn.Module, compute: str | None) -> None:
        self._compute = compute
        self._fp32 = _fp32_pattern(model, compute)

    def wanted(
        self, stored: StoredTensor, names: Iterable[str], is_buffer: bool, declared: torch.dtype
    ) -> str:
        """Safetensors' name of the dtype. `declared` is what the model's own tensor has."""
        if is_buffer and not stored.has_scale:
            return _of_buffer(stored, declared)
        if self._compute is None:
            if stored.dtype in _PLAIN_FLOATS:
                return stored.dtype
            wanted = _COMPUTE_TORCH.get(declared, "BF16")
        elif self._fp32 is not None and any(self._fp32.search(name) for name in names):
            wanted = "F32"
        else:
            wanted = self._compute
        return wanted if _native.can_expand(stored.dtype, wanted) else stored.dtype


def _of_buffer(stored: StoredTensor, declared: torch.dtype) -> str:
    wanted = _COMPUTE_TORCH.get(declared)
    if wanted is None or stored.dtype not in _PLAIN_FLOATS:
        return stored.dtype
    return wanted if _native.can_expand(stored.dtype, wanted) else stored.dtype


def _fp32_pattern(model: nn.Module, compute: str | None) -> re.Pattern[str] | None:
    """Names of the modules that transformers or diffusers keep in fp32, as one expression.

    transformers has two lists: the plain one counts for fp16 only, the strict one for bf16 too.
    diffusers has the plain one alone, for every dtype.
    """
    keep: set[str] = set()
    for module in model.modules():
        strict = getattr(module, "_keep_in_fp32_modules_strict", None)
        plain = getattr(module, "_keep_in_fp32_modules", None)
        keep.update(strict or ())
        if compute == "F16" or not hasattr(type(module), "_keep_in_fp32_modules_strict"):
            keep.update(plain or ())
    if not keep or compute in (None, "F32"):
        return None
    alternatives = "|".join(re.escape(name) for name in sorted(keep))
    return re.compile(rf"(?:^|\.)(?:{alternatives})(?:\.|$)")
