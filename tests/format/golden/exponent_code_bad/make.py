"""Writes this folder's exponent codes: the golden one of 256 bf16 elements with one defect each.

Run it after the golden one has changed; the results are committed.
"""

import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = (HERE.parent / "exponent_code" / "bf16.coded").read_bytes()
SIZE, ELEMENTS, FORM, RESERVED, ESCAPES, LITERALS, RESTS = 0, 4, 8, 19, 32, 34, 64
CODES = RESTS + 256
ESCAPE_COUNT, LITERAL_COUNT = struct.unpack_from("<HH", GOLDEN, ESCAPES)


def put(layout: str, offset: int, value: int, data: bytes = GOLDEN) -> bytes:
    """The golden code with one field overwritten."""
    edited = bytearray(data)
    struct.pack_into(layout, edited, offset, value)
    return bytes(edited)


def with_escape_added() -> bytes:
    """Four codes of the first level become codes of the second."""
    offset = next(i for i in range(CODES, CODES + 64) if GOLDEN[i] != 0xFF)
    return put("<B", offset, 0xFF)


# One more or less must not change the size: only then is it the codes that tell.
assert ESCAPE_COUNT % 8 not in (0, 1)

DEFECTS = {
    "bytes_follow": GOLDEN + bytes(64),
    "chunk_past_end": put("<I", SIZE, len(GOLDEN) + 64),
    "chunk_size_not_of_its_escapes": put("<I", SIZE, len(GOLDEN) + 64) + bytes(64),
    "chunk_size_odd": put("<I", SIZE, len(GOLDEN) + 1) + bytes(1),
    "chunk_size_too_large": put("<I", SIZE, 64 + 512 + 64) + bytes(64 + 512 + 64 - len(GOLDEN)),
    "chunk_size_too_small": put("<I", SIZE, 64),
    "element_count_0": put("<I", ELEMENTS, 0),
    "element_count_65537": put("<I", ELEMENTS, 65537),
    "element_count_other": put("<I", ELEMENTS, 255),
    "escape_code_added": with_escape_added(),
    "escape_count_too_large": put("<H", ESCAPES, ESCAPE_COUNT + 1),
    "escape_count_too_small": put("<H", ESCAPES, ESCAPE_COUNT - 1),
    "escapes_more_than_elements": put("<H", ESCAPES, 257),
    "form_of_f32": put("<B", FORM, 2),
    "form_unknown": put("<B", FORM, 3),
    "literal_count_too_large": put("<H", LITERALS, LITERAL_COUNT + 1),
    "literal_count_too_small": put("<H", LITERALS, LITERAL_COUNT - 1),
    "literals_more_than_escapes": put("<H", LITERALS, ESCAPE_COUNT + 1),
    "reserved_byte_set": put("<B", RESERVED, 1),
    "truncated": GOLDEN[:-64],
    "truncated_head": GOLDEN[:63],
}

for path in HERE.glob("*.coded"):
    path.unlink()
for name, data in DEFECTS.items():
    (HERE / f"{name}.coded").write_bytes(data)
