"""Types of the native module. Private: use the functions of the package."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

__version__: str

class ManifestTensor(TypedDict):
    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    is_scale: bool
    has_scale: bool

class ManifestExtent(TypedDict):
    name: str
    tier: str
    stored_bytes: int
    tensors: list[ManifestTensor]

class Manifest(TypedDict):
    source_path: str
    source_fingerprint: str
    extents: list[ManifestExtent]
    aliases: dict[str, str]

class PlannedBlock(TypedDict):
    name: str
    tier: str

class Plan(TypedDict):
    model_path: str
    model_fingerprint: str
    compute_dtype: str
    lookahead_bytes: int
    blocks: list[PlannedBlock]

class StreamStats(TypedDict):
    pass_count: int
    read_bytes_base: int
    read_bytes_ram: int
    read_bytes_disk: int
    pass_read_bytes_ram: int
    pass_read_bytes_disk: int
    mispredict_count: int
    wait_ns: int
    weight_memory_bytes: int
    weight_memory_bytes_max: int
    io_description: str

class Array:
    """Memory of the streamer, for torch.from_dlpack(); it keeps the streamer alive."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Lease:
    """A block's tensors, in memory until release()."""

    @property
    def names(self) -> list[str]: ...
    @property
    def addresses(self) -> tuple[int, ...]: ...
    def arrays(self) -> list[Array]: ...
    def release(self) -> None: ...

class Streamer:
    """Streams a pack's blocks through fixed memory."""

    @staticmethod
    def open(
        pack: str | os.PathLike[str],
        *,
        compute_dtype: str | None = None,
        dtype_overrides: Mapping[str, str] = ...,
        verify: str = "headers",
        lookahead_bytes: int | None = None,
        tiers: Sequence[str] | None = None,
        io: str = "auto",
    ) -> Streamer: ...
    @property
    def block_count(self) -> int: ...
    @property
    def forked(self) -> bool:
        """Whether this is a forked child's copy, which can't stream."""

    def base(self) -> list[tuple[str, Array]]: ...
    def acquire(self, block_index: int) -> Lease: ...
    def stats(self) -> StreamStats: ...

def read_manifest(pack: str | os.PathLike[str]) -> Manifest: ...
def parse_plan(text: str, where: str) -> Plan: ...
def verify_pack(
    pack: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
) -> list[str]: ...
def parse_bytes(text: str) -> int: ...
def can_expand(stored: str, wanted: str) -> bool: ...
