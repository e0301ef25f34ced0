"""Makes the seed inputs of every fuzz target: `make_seeds.py FOLDER`, one folder per target in it.

They come from the checkpoints of ../shared/cases where those lie beside the project, from golden
files of other tests, and from seeds/. Tensor data are cut off: mutating them finds nothing.
"""

import collections
import hashlib
import io
import pathlib
import pickle
import shutil
import struct
import sys
import zipfile
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


def _checkpoint() -> Iterator[bytes]:
    for path in _cases("*.safetensors"):
        config = path.with_name("config.json")
        data = path.read_bytes()
        (header_bytes,) = struct.unpack("<Q", data[:8].ljust(8, b"\0"))
        text = config.read_bytes() if config.exists() else b""
        # Data do not matter but for blobs of metadata, which are short and in short files.
        yield text + b"\0" + (data if len(data) < 6000 else data[: 8 + header_bytes])
    for data in _torch_files():
        yield b"\0" + data
    for path in _cases("*.gguf"):
        yield b"\0" + path.read_bytes()


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


def _hardware_json() -> Iterator[bytes]:
    yield b""  # All of them are in seeds/.


def _gguf_header() -> Iterator[bytes]:
    for path in _cases("*.gguf"):
        data = path.read_bytes()
        yield data
        # With the file's size at its end, as the target reads it.
        for cut in (len(data) * part // 8 for part in range(2, 8)):
            yield data[:cut] + struct.pack("<Q", len(data))


def _torch_files() -> Iterator[bytes]:
    for path in _cases("*.pt", "*.pth", "*.ckpt", "*.bin"):
        yield path.read_bytes()


def _pickle() -> Iterator[bytes]:
    for data in _torch_files():
        if zipfile.is_zipfile(io.BytesIO(data)):
            archive = zipfile.ZipFile(io.BytesIO(data))
            yield from (archive.read(name) for name in archive.namelist() if name[-4:] == ".pkl")
        else:
            starts = [at for at in range(len(data)) if data[at : at + 2] == b"\x80\x02"]
            yield from (data[at : at + 4096] for at in starts)
    values = {"state_dict": {"a": 1, "b": [1.5, None, b"c"]}, "epoch": (1, 2, 3, 2**70), 4: "é"}
    for protocol in range(6):
        yield pickle.dumps(collections.OrderedDict(values), protocol)


def _zip_directory() -> Iterator[bytes]:
    yield from _torch_files()
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        for comment in (b"", b"PK\5\6 is how a directory ends"):
            file = io.BytesIO()
            with zipfile.ZipFile(file, "w", how) as archive:
                archive.comment = comment
                with archive.open("archive/data.pkl", "w", force_zip64=bool(comment)) as entry:
                    entry.write(pickle.dumps({"a": 1}, 2))
                archive.writestr("archive/data/0", bytes(40))
            yield file.getvalue()


MAKERS = {
    "checkpoint": _checkpoint,
    "gguf_header": _gguf_header,
    "hardware_json": _hardware_json,
    "index": _index,
    "manifest": _manifest,
    "pickle": _pickle,
    "plan_toml": _plan_toml,
    "safetensors_header": _safetensors_header,
    "zip_directory": _zip_directory,
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
