"""Stored numbers as F32 bit patterns, by the book: one obvious way that faster ones must equal.

Values travel as the 32 bits of an F32, so that -0, subnormals and NaN payloads are compared too.
"""

import math
import struct

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F16": 16,
    "BF16": 16, "F32": 32, "F64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
FLOATS = ("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F16", "BF16", "F32",
          "F64")  # fmt: skip

_NAN = float("nan")


def to_bits(value: float) -> int:
    """The F32 nearest to a number, ties to even; infinity where it is too large."""
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0xFF800000 if value < 0 else 0x7F800000


def from_bits(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def is_nan(bits: int) -> bool:
    return bits & 0x7FFFFFFF > 0x7F800000


def multiply(left: int, right: int) -> int:
    """Product in F32: that of two F32 is exact in F64, so it is rounded once."""
    return to_bits(from_bits(left) * from_bits(right))


def _small_float(code: int, exponent_bits: int, fraction_bits: int, bias: int) -> float:
    fraction = code & ((1 << fraction_bits) - 1)
    exponent = (code >> fraction_bits) & ((1 << exponent_bits) - 1)
    if exponent == 0:
        magnitude = math.ldexp(fraction, 1 - bias - fraction_bits)
    else:
        magnitude = math.ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)
    return -magnitude if code >> (exponent_bits + fraction_bits) & 1 else magnitude


def _decode_e4m3(code: int) -> float:
    return _NAN if code & 0x7F == 0x7F else _small_float(code, 4, 3, 7)


def _decode_e5m2(code: int) -> float:
    if code & 0x7C == 0x7C:
        return _NAN if code & 3 else -math.inf if code & 0x80 else math.inf
    return _small_float(code, 5, 2, 15)


def _decode_e8m0(code: int) -> float:
    return _NAN if code == 255 else math.ldexp(1.0, code - 127)


def _decode_half(code: int) -> int:
    """With the payload of a NaN, which the value alone would lose."""
    if code & 0x7C00 == 0x7C00:
        return (code & 0x8000) << 16 | 0x7F800000 | (code & 0x3FF) << 13
    return to_bits(_small_float(code, 5, 10, 15))


_BYTE_TABLES = {
    "F8_E4M3": [to_bits(_decode_e4m3(code)) for code in range(256)],
    "F8_E5M2": [to_bits(_decode_e5m2(code)) for code in range(256)],
    "F8_E8M0": [to_bits(_decode_e8m0(code)) for code in range(256)],
    "F8_E4M3FNUZ": [
        to_bits(_NAN if code == 0x80 else _small_float(code, 4, 3, 8)) for code in range(256)
    ],
    "F8_E5M2FNUZ": [
        to_bits(_NAN if code == 0x80 else _small_float(code, 5, 2, 16)) for code in range(256)
    ],
}


def decode(dtype: str, data: bytes) -> list[int]:
    """The elements of a tensor of floats, as bits of F32."""
    if dtype in _BYTE_TABLES:
        table = _BYTE_TABLES[dtype]
        return [table[code] for code in data]
    count = len(data) * 8 // BITS[dtype]
    if dtype == "F32":
        return list(struct.unpack(f"<{count}I", data))
    if dtype == "BF16":
        return [code << 16 for code in struct.unpack(f"<{count}H", data)]
    if dtype == "F16":
        return [_decode_half(code) for code in struct.unpack(f"<{count}H", data)]
    if dtype == "F64":
        return [to_bits(value) for value in struct.unpack(f"<{count}d", data)]
    raise ValueError(f"{dtype} is no float")
