"""Makes the seed inputs of every fuzz target: `make_seeds.py FOLDER`, one folder per target in it.

They come from the checkpoints of ../shared/cases where those lie beside the project, from golden
files of other tests, and from seeds/. Tensor data are cut off: mutating them finds nothing.
"""

import hashlib
import pathlib
import shutil
import struct
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared/cases"
FORMAT_TESTS = ROOT / "tests/format"
# Longest seed: libFuzzer mutates short inputs better, and takes the longest one as its limit.
BYTES_MAX = 16384


def _cases(*patterns: str) -> Iterator[pathlib.Path]:
    for pattern in patterns:
        yield from sorted(CASES.glob(f"*/in/**/{pattern}"))


def _safetensors_header() -> Iterator[bytes]:
    for path in _cases("*.safetensors"):
        data = path.read_bytes()
        yield data[:BYTES_MAX] if len(data) < 4096 else b""
        (header_bytes,) = struct.unpack("<Q", data[:8].ljust(8, b"\0"))
        yield data[: 8 + min(header_bytes, BYTES_MAX)]


def _index() -> Iterator[bytes]:
    for path in _cases("*.index.json"):
        yield path.read_bytes()


def _plan_toml() -> Iterator[bytes]:
    for path in sorted(FORMAT_TESTS.glob("golden/*/plan.toml")):
        yield path.read_bytes()


def _manifest() -> Iterator[bytes]:
    for path in sorted(FORMAT_TESTS.glob("golden/*/manifest.json")):
        yield path.read_bytes()
    for path in sorted(FORMAT_TESTS.glob("golden_bad/*.json")):
        yield path.read_bytes()


MAKERS = {
    "index": _index,
    "manifest": _manifest,
    "plan_toml": _plan_toml,
    "safetensors_header": _safetensors_header,
}


def make_seeds(target: str, folder: pathlib.Path) -> int:
    """Fills a folder that is made anew; returns how many seeds it holds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kept = sorted((pathlib.Path(__file__).parent / "seeds" / target).glob("*"))
    for data in [*(path.read_bytes() for path in kept), *MAKERS[target]()]:
        if 0 < len(data) <= BYTES_MAX:
            (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    return sum(1 for _ in folder.iterdir())


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    if not CASES.is_dir():
        print(f"note: no {CASES}: seeds come from the project's own files only")
    without = []
    for target in MAKERS:
        count = make_seeds(target, folder / target)
        print(f"{count:5} seeds of {target}")
        if count == 0:
            without.append(target)
    if without:
        print(f"no seed for: {', '.join(without)}")
    return 1 if without else 0


if __name__ == "__main__":
    sys.exit(main())
