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
    stored_bytes: int
    extent_bytes: int
    expanded_bytes: int
    form: str

class Prediction(TypedDict):
    pass_s: float
    bound_s: float
    limiting: str
    stall_s: float
    first_pass_s: float

class Plan(TypedDict):
    model_path: str
    model_fingerprint: str
    compute_dtype: str
    lookahead_bytes: int
    base_bytes: int
    slot_bytes: int
    compute_slot_bytes: int
    ram_budget_bytes: int
    ram_used_bytes: int
    vram_budget_bytes: int
    vram_used_bytes: int
    fits: bool
    predicted: Prediction | None
    blocks: list[PlannedBlock]

class TierMove(TypedDict):
    tier: str
    pass_s: float | None
    ram_used_bytes: int
    vram_used_bytes: int
    fits: bool

class BlockExplanation(TypedDict):
    reason: str
    read_s: float
    decode_s: float
    copy_s: float
    compute_s: float
    stall_s: float
    stalled_by: str
    moves: list[TierMove]

class Checkpoint(TypedDict):
    path: str
    files: list[str]
    fingerprint: str
    tensors: list[tuple[str, str, tuple[int, ...]]]

class StreamStats(TypedDict):
    pass_count: int
    read_bytes_base: int
    read_bytes_ram: int
    read_bytes_disk: int
    pass_read_bytes_ram: int
    pass_read_bytes_disk: int
    promoted_block_count: int
    promoted_bytes: int
    demoted_block_count: int
    mispredict_count: int
    wait_ns: int
    weight_memory_bytes: int
    weight_memory_bytes_max: int
    device_memory_bytes: int
    device_description: str
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
    def addresses(self) -> bytes:
        """Where the tensors are, as one value that can be compared."""

    def arrays(self) -> list[Array]: ...
    def release(self) -> None: ...

class MemoryGroup:
    """A limit of weight memory that several streamers share."""

    def __init__(self, limit_bytes: int, name: str) -> None: ...
    @property
    def limit_bytes(self) -> int: ...
    @property
    def now_bytes(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...

class Gpu:
    """A GPU, for all models that compute on it."""

    @staticmethod
    def open(ordinal: int, library: str = "", is_synchronous: bool = False) -> Gpu:
        """In the context that torch uses.

        :param ordinal: as torch counts.
        :param library: the driver's; default: libcuda.so.1.
        :param is_synchronous: every copy is waited for.
        """

    @property
    def ordinal(self) -> int: ...

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
        io: str = "auto",
        run_log: str | os.PathLike[str] = "",
        memory_group: MemoryGroup | None = None,
        plan: str | None = None,
        is_packed: bool = True,
        gpu: Gpu | None = None,
    ) -> Streamer:
        """Opens a pack, or a checkpoint that was not packed.

        :param plan: text of a plan to follow instead of the pack's own; a checkpoint needs one.
        """

    @property
    def block_count(self) -> int: ...
    @property
    def all_resident(self) -> bool:
        """Whether every block stays in memory of its own, so that its lease can be held."""

    @property
    def forked(self) -> bool:
        """Whether this is a forked child's copy, which can't stream."""

    def base(self) -> list[tuple[str, Array]]: ...
    def acquire(self, block_index: int, stream: int = 0) -> Lease:
        """Waits for a block, and lends it to what is queued on the stream until release()."""

    def preload(self, block_index: int) -> None:
        """Reads a block of the RAM tier and waits; DoesNotFitError: there is no memory yet."""

    def drop(self, block_index: int) -> int:
        """Gives back a block's memory, with a memory_group; returns the bytes."""

    def check_decoded(self) -> None:
        """Waits for a GPU; CheckpointError: a code that it decoded was damaged."""

    def release_device(self) -> None:
        """Gives back the memory of the GPU; arrays of base() and of leases end with it."""

    def restore_device(self) -> None:
        """Takes it again; base() is made anew. DoesNotFitError: all is as it was before."""

    def promote(self, size_bytes_max: int = ...) -> int:
        """Lets blocks of the disk tier stay in memory that is free; returns the bytes taken."""

    def end_log(self) -> None: ...
    def stats(self) -> StreamStats: ...

def read_manifest(pack: str | os.PathLike[str]) -> Manifest: ...
def checkpoint_manifest(checkpoint: str | os.PathLike[str], plan: str) -> Manifest:
    """What streaming from a checkpoint itself has for a manifest."""

def parse_plan(text: str, where: str) -> Plan: ...
def retier_plan(text: str, where: str, tiers: Sequence[str]) -> str: ...
def explain_block(text: str, where: str, index: int) -> BlockExplanation: ...
def check_plan(text: str, where: str, checkpoint: str | os.PathLike[str]) -> None: ...
def read_checkpoint(checkpoint: str | os.PathLike[str]) -> Checkpoint: ...
def find_blocks(
    tensors: Sequence[tuple[str, str, Sequence[int]]], groups: Sequence[str]
) -> list[tuple[str, list[tuple[str, int]]]]: ...
def probe_hardware() -> str: ...
def verify_pack(
    pack: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
) -> list[str]: ...
def parse_bytes(text: str) -> int: ...
def can_expand(stored: str, wanted: str) -> bool: ...
