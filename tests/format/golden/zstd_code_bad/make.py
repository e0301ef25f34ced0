"""Writes this folder's zstd codes: the golden one of bf16 elements with one defect each.

Run it after the golden one has changed; the results are committed.
"""

import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = (HERE.parent / "zstd_code" / "bf16.coded").read_bytes()
SIZE, RAW_BYTES, PLANES, RESERVED, FIRST, SECOND, THIRD, MORE_RESERVED = 0, 4, 8, 9, 16, 20, 24, 48
RAW = struct.unpack_from("<I", GOLDEN, RAW_BYTES)[0]
STORED = struct.unpack_from("<2I", GOLDEN, FIRST)
# Only the plane of the upper bytes is a frame, which begins behind the other.
FRAME = 64 + STORED[0]
assert STORED[0] == RAW // 2 > STORED[1]


def put(layout: str, offset: int, value: int, data: bytes = GOLDEN) -> bytes:
    """The golden code with one field overwritten."""
    edited = bytearray(data)
    struct.pack_into(layout, edited, offset, value)
    return bytes(edited)


def with_frame(frame: bytes) -> bytes:
    """The golden code with another frame, and sizes that fit it."""
    data = GOLDEN[:FRAME] + frame
    data += bytes(-len(data) % 64)
    return put("<I", SECOND, len(frame), put("<I", SIZE, len(data), data))


GOLDEN_FRAME = GOLDEN[FRAME : FRAME + STORED[1]]
# A skippable frame of four bytes, which decodes to nothing.
SKIPPABLE = struct.pack("<II", 0x184D2A50, 4) + bytes(4)

DEFECTS = {
    "bytes_follow": GOLDEN + bytes(64),
    "chunk_past_end": put("<I", SIZE, len(GOLDEN) + 64),
    "chunk_size_odd": put("<I", SIZE, len(GOLDEN) + 1) + bytes(1),
    "chunk_size_too_small": put("<I", SIZE, len(GOLDEN) - 64)[:-64],
    "frame_cut": with_frame(GOLDEN_FRAME[:-1]),
    "frame_damaged": put("<I", FRAME, 0xFD2FB529),
    "frame_followed_by_another": with_frame(GOLDEN_FRAME + SKIPPABLE),
    "frame_of_nothing": with_frame(SKIPPABLE),
    "plane_count_other": put("<B", PLANES, 4),
    "plane_empty": put("<I", SECOND, 0),
    "plane_too_large": put("<I", FIRST, RAW // 2 + 1),
    "plane_too_many": put("<I", THIRD, 1),
    "raw_bytes_0": put("<I", RAW_BYTES, 0),
    "raw_bytes_odd": put("<I", RAW_BYTES, RAW - 1),
    "raw_bytes_other": put("<I", RAW_BYTES, RAW - 2),
    "raw_bytes_too_many": put("<I", RAW_BYTES, 1_048_578),
    "reserved_byte_set": put("<B", RESERVED, 1),
    "reserved_byte_set_behind": put("<B", MORE_RESERVED, 1),
    "truncated": GOLDEN[:-64],
    "truncated_head": GOLDEN[:63],
}

for path in HERE.glob("*.coded"):
    path.unlink()
for name, data in DEFECTS.items():
    (HERE / f"{name}.coded").write_bytes(data)
