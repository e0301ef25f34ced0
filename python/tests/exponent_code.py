"""The exponent code, decoded as docs/pack_format.md describes it, in plain Python."""

from __future__ import annotations

import struct

CHUNK_ELEMENTS = 65_536
TILE_ELEMENTS = 2_048
HEAD_BYTES = 64
SLACK_BYTES = 64
WIDTHS = {"BF16": 2, "F32": 4}
FORMS = {0: ("BF16", "F32"), 1: ("BF16",), 2: ("F32",)}
ESCAPE = 3
LITERAL = 7


class CodeError(ValueError):
    """The code breaks a rule."""


def require(condition: bool, rule: str) -> None:
    """Raises CodeError unless the condition holds."""
    if not condition:
        raise CodeError(rule)


def up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is not less than `size`."""
    return -(-size // unit) * unit


def decode(coded: bytes, dtype: str, element_count: int) -> bytes:
    """The elements of a coded array, as they lay in memory."""
    raw = bytearray()
    offset = 0
    while len(raw) < element_count * WIDTHS[dtype]:
        left = element_count - len(raw) // WIDTHS[dtype]
        require(len(coded) - offset >= HEAD_BYTES, "a chunk is shorter than its head")
        (size,) = struct.unpack_from("<I", coded, offset)
        require(size <= len(coded) - offset, "a chunk ends after the array")
        raw += decode_chunk(coded[offset : offset + size], dtype, min(left, CHUNK_ELEMENTS))
        offset += size
    require(offset == len(coded), "bytes follow the last chunk")
    return bytes(raw)


def decode_chunk(chunk: bytes, dtype: str, element_count: int) -> bytes:
    """The elements of one chunk."""
    require(len(chunk) >= HEAD_BYTES, "a chunk is shorter than its head")
    size, elements, form = struct.unpack_from("<IIB", chunk)
    require(size == len(chunk), "a chunk says another size")
    require(elements == element_count, "a chunk says another number of elements")
    require(dtype in FORMS.get(form, ()), "a form that is none of this dtype")
    raw_bytes = elements * WIDTHS[dtype]
    raw_size = up(HEAD_BYTES + raw_bytes, 64)
    if form == 0:
        require(size == raw_size, "a raw chunk is not of its size")
        require(not any(chunk[9:64]), "reserved bytes are in use")
        return chunk[HEAD_BYTES : HEAD_BYTES + raw_bytes]
    require(size <= raw_size, "a coded chunk is larger than a raw one")
    require(not any(chunk[19:32]), "reserved bytes are in use")

    tile_count = -(-elements // TILE_ELEMENTS)
    filled = up(elements, 64)
    rests = up(32 + 4 * tile_count, 64)
    codes = rests + filled
    lower_halves = codes + filled // 4
    run = lower_halves + (2 * filled if form == 2 else 0)
    records = struct.unpack_from(f"<{2 * tile_count}H", chunk, 32)
    runs = list(zip(records[::2], records[1::2], strict=True))
    end = run + sum(-(-escapes // 8) * 3 + literals for escapes, literals in runs)
    require(size == up(end + SLACK_BYTES, 64), "escapes do not add up to the chunk's size")

    values: list[int] = []
    for tile, (escape_count, literal_count) in enumerate(runs):
        begin = tile * TILE_ELEMENTS
        count = min(TILE_ELEMENTS, elements - begin)
        require(literal_count <= escape_count <= count, "more escapes than elements")
        run_bytes = -(-escape_count // 8) * 3 + literal_count
        escaped = iter(
            decode_escapes(chunk[run : run + run_bytes], escape_count, literal_count, chunk[12:19])
        )
        run += run_bytes
        for i in range(begin, begin + up(count, 64)):
            code = chunk[codes + i // 4] >> 2 * (i % 4) & 3
            exponent = next(escaped, None) if code == ESCAPE else chunk[9 + code]
            if exponent is None:
                raise CodeError("a tile has more escapes than it says")
            rest = chunk[rests + i]
            values.append((rest & 0x80) << 8 | exponent << 7 | rest & 0x7F)
        require(next(escaped, None) is None, "a tile has fewer escapes than it says")
        del values[begin + count :]
    if form == 1:
        return struct.pack(f"<{elements}H", *values)
    lower = struct.unpack_from(f"<{elements}H", chunk, lower_halves)
    return struct.pack(f"<{elements}I", *(v << 16 | h for v, h in zip(values, lower, strict=True)))


def decode_escapes(run: bytes, escape_count: int, literal_count: int, second: bytes) -> list[int]:
    """The exponents of a tile's escapes."""
    literals = iter(run[len(run) - literal_count :])
    exponents = []
    for i in range(escape_count):
        octet = int.from_bytes(run[i // 8 * 3 : i // 8 * 3 + 3], "little")
        code = octet >> 3 * (i % 8) & 7
        exponent = next(literals, None) if code == LITERAL else second[code]
        if exponent is None:
            raise CodeError("a tile has more literals than it says")
        exponents.append(exponent)
    require(next(literals, None) is None, "a tile has fewer literals than it says")
    return exponents
