"""A reader written from docs/pack_format.md decodes what the encoder made, and refuses defects."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import exponent_code

GOLDEN = Path(__file__).resolve().parents[2] / "tests/format/golden"
GOOD = sorted((GOLDEN / "exponent_code").glob("*.coded"))
BAD = sorted((GOLDEN / "exponent_code_bad").glob("*.coded"))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_golden_code_decodes_to_its_elements(path: Path) -> None:
    raw = path.with_suffix(".raw").read_bytes()
    dtype = "F32" if path.name.startswith("f32") else "BF16"
    count = len(raw) // exponent_code.WIDTHS[dtype]
    assert exponent_code.decode(path.read_bytes(), dtype, count) == raw


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_defects_are_refused(path: Path) -> None:
    with pytest.raises(exponent_code.CodeError):
        exponent_code.decode(path.read_bytes(), "BF16", 256)


def test_golden_files_are_there() -> None:
    assert len(GOOD) == 4
    assert len(BAD) > 20


def test_chunks_follow_each_other() -> None:
    first = bytes(range(256)) * 512
    head = struct.pack("<IIB55x", 64 + len(first), 65_536, 0)
    last = GOLDEN / "exponent_code/bf16.coded"
    array = exponent_code.decode(head + first + last.read_bytes(), "BF16", 65_536 + 256)
    assert array == first + last.with_suffix(".raw").read_bytes()


def test_an_empty_array_has_no_chunks() -> None:
    assert exponent_code.decode(b"", "BF16", 0) == b""
