"""Small models, and what they compute when resident."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 64


class Layer(nn.Module):
    """A residual block with two Linears, as a transformer's feed-forward part."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down(functional.gelu(self.up(self.norm(hidden))))


class Tower(nn.Module):
    """An embedding, blocks and a head, which may be the embedding itself."""

    def __init__(self, block_count: int = 24, *, tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(block_count))
        self.head = nn.Linear(WIDTH, 100, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embed(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)


def tokens() -> Tensor:
    return torch.arange(12).reshape(2, 6) * 7 % 100


def build(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """The resident model, in eval mode, with weights that a seed gives."""
    torch.manual_seed(seed)
    return make().eval().requires_grad_(False)


def on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return make()


def assert_bit_equal(actual: Tensor, expected: Tensor) -> None:
    """Equal dtype, shape and bytes: NaN equals NaN, -0.0 differs from 0.0."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    as_bytes = [
        t.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for t in (actual, expected)
    ]
    assert torch.equal(*as_bytes), f"differs by up to {(actual - expected).abs().max()}"
