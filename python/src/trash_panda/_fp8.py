"""fp8 by hand: the same formula that streaming uses."""

from __future__ import annotations

import torch
from torch import Tensor

_FP8 = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)
_SCALE_MIN = 1e-12


def expand(
    raw: Tensor,
    scale: Tensor | None,
    compute_dtype: torch.dtype,
    device: str | torch.device = "cpu",
) -> Tensor:
    """A stored weight in the compute dtype: the product in fp32, rounded once.

    :param raw: `[out, …]`; integers are only moved.
    :param scale: multiplies; of one value, one a row (`[out]` or `[out, 1]`), or one a block
        (`[ceil(out/b), ceil(in/b)]` for a 2-D weight, where the last blocks may be cut).
    :raises ValueError: the scale has another shape.
    """
    raw = raw.to(device)
    if not raw.is_floating_point():
        return raw
    if scale is None:
        return raw.to(compute_dtype)
    grid = _as_grid(raw, scale.to(device=raw.device, dtype=torch.float32))
    return (raw.to(torch.float32) * grid).to(compute_dtype)


def quantize_fp8(w: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """Quantizes a tensor with one scale; `q * scale` is near `w`. Lossy.

    :param dtype: torch.float8_e4m3fn by default.
    :return: the codes, of the shape of `w`, and the scale, fp32 without dimensions: the largest
        magnitude over that of the dtype, at least 1e-12.
    """
    chosen = dtype or torch.float8_e4m3fn
    if chosen not in _FP8:
        raise ValueError(f"{chosen} is no fp8 dtype")
    largest = torch.finfo(chosen).max
    wide = w.to(torch.float32)
    peak = wide.abs().max() if wide.numel() else torch.zeros(())
    scale = (peak / largest).clamp(min=_SCALE_MIN)
    return (wide / scale).clamp(-largest, largest).to(chosen), scale


def _as_grid(raw: Tensor, scale: Tensor) -> Tensor:
    """The scale in a shape that broadcasts against the weight."""
    if scale.numel() == 1:
        return scale.reshape(())
    rows = raw.shape[0] if raw.ndim else 1
    if scale.shape in (torch.Size([rows]), torch.Size([rows, *[1] * (raw.ndim - 1)])):
        return scale.reshape(rows, *[1] * (raw.ndim - 1))
    if raw.ndim == scale.ndim == 2:
        blocks = [-(-size // count) for size, count in zip(raw.shape, scale.shape, strict=True)]
        counts = [-(-size // block) for size, block in zip(raw.shape, blocks, strict=True)]
        if counts == list(scale.shape):
            grid = scale.repeat_interleave(blocks[0], 0).repeat_interleave(blocks[1], 1)
            return grid[: raw.shape[0], : raw.shape[1]]
    raise ValueError(f"a scale of shape {list(scale.shape)} fits no weight of {list(raw.shape)}")
