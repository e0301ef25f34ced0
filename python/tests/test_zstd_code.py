"""A reader written from docs/pack_format.md decodes what the encoder made, and refuses defects."""

from __future__ import annotations

from pathlib import Path

import pytest

import zstd_code

GOLDEN = Path(__file__).resolve().parents[2] / "tests/format/golden"
GOOD = sorted((GOLDEN / "zstd_code").glob("*.coded"))
BAD = sorted((GOLDEN / "zstd_code_bad").glob("*.coded"))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_golden_code_decodes_to_its_elements(path: Path) -> None:
    raw = path.with_suffix(".raw").read_bytes()
    assert zstd_code.decode(path.read_bytes(), path.stem.split("_")[0].upper(), len(raw)) == raw


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_defects_are_refused(path: Path) -> None:
    size = len((GOLDEN / "zstd_code/bf16.raw").read_bytes())
    with pytest.raises(zstd_code.CodeError):
        zstd_code.decode(path.read_bytes(), "BF16", size)


def test_golden_files_are_there() -> None:
    assert len(GOOD) == 4
    assert len(BAD) > 12
