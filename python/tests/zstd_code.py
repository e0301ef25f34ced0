"""The zstd code, decoded as docs/pack_format.md describes it. Frames are the system's libzstd's."""

from __future__ import annotations

import ctypes
import ctypes.util
import struct

from exponent_code import CodeError, require, up

CHUNK_BYTES = 1_048_576
HEAD_BYTES = 64
PLANES_MAX = 8
WIDTHS = {
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 2),
    **dict.fromkeys(("I32", "U32", "F32"), 4),
    **dict.fromkeys(("C64", "F64", "I64", "U64"), 8),
}

_library = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
for _name in ("ZSTD_decompress", "ZSTD_findFrameCompressedSize"):
    getattr(_library, _name).restype = ctypes.c_size_t


def _decompress(frame: bytes, size: int) -> bytes:
    length = ctypes.c_size_t(len(frame))
    require(
        _library.ZSTD_findFrameCompressedSize(frame, length) == len(frame), "a plane is not a frame"
    )
    target = ctypes.create_string_buffer(size)
    made = _library.ZSTD_decompress(target, ctypes.c_size_t(size), frame, length)
    require(made == size, "a frame does not decode to its plane")
    return target.raw


def _decode_chunk(chunk: bytes, width: int) -> bytes:
    size, raw_bytes, planes = struct.unpack_from("<IIB", chunk)
    stored = struct.unpack_from("<8I", chunk, 16)
    require(not any(chunk[9:16]) and not any(chunk[48:64]), "reserved bytes are not zero")
    require(0 < raw_bytes <= CHUNK_BYTES and raw_bytes % width == 0, "raw bytes")
    require(planes in (0, width) and not any(stored[planes:]), "planes")
    total = sum(stored) if planes else raw_bytes
    require(size == up(HEAD_BYTES + total, 64), "a chunk has not the size of its planes")
    if planes == 0:
        return chunk[HEAD_BYTES : HEAD_BYTES + raw_bytes]
    raw = bytearray(raw_bytes)
    offset = HEAD_BYTES
    for plane in range(planes):
        data = chunk[offset : offset + stored[plane]]
        offset += stored[plane]
        require(0 < len(data) <= raw_bytes // planes, "size of a plane")
        if len(data) < raw_bytes // planes:
            data = _decompress(data, raw_bytes // planes)
        raw[plane::planes] = data
    return bytes(raw)


def decode(coded: bytes, dtype: str, size: int) -> bytes:
    """The bytes of a coded array, as they lay in memory."""
    raw = bytearray()
    offset = 0
    while len(raw) < size:
        require(len(coded) - offset >= HEAD_BYTES, "a chunk is shorter than its head")
        chunk_bytes, raw_bytes = struct.unpack_from("<II", coded, offset)
        require(HEAD_BYTES < chunk_bytes <= len(coded) - offset, "a chunk ends after the array")
        require(raw_bytes == min(CHUNK_BYTES, size - len(raw)), "a chunk of another size")
        raw += _decode_chunk(coded[offset : offset + chunk_bytes], WIDTHS.get(dtype, 1))
        offset += chunk_bytes
    require(offset == len(coded), "bytes follow the array")
    return bytes(raw)


__all__ = ["CodeError", "decode"]
