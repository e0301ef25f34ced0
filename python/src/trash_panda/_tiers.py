"""Where blocks wait."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Tier(str, Enum):
    """Where a block waits between its uses."""

    GPU = "gpu"
    RAM = "ram"
    DISK = "disk"


@dataclass
class BlockPlan:
    """One block. Sizes are in bytes; 0: not known."""

    prefix: str  # With a final dot: "blocks.3.".
    tier: Tier = Tier.RAM
    stored_bytes: int = 0  # As it waits.
    expanded_bytes: int = 0  # In the compute dtype.
