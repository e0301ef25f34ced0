"""Makes the seed inputs of every fuzz target: `make_seeds.py FOLDER`, one folder per target in it.

They come from the checkpoints of ../shared/cases where those lie beside the project, from golden
files of other tests, and from seeds/. Tensor data are cut off: mutating them finds nothing.
"""

import collections
import hashlib
import io
import json
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


def _safetensors(entries: dict, metadata: dict[str, str] | None = None) -> bytes:
    header = json.dumps({"__metadata__": metadata or {}, **entries}).encode()
    return struct.pack("<Q", len(header)) + header


def _gguf() -> bytes:
    """Two values, a matrix of Q8_0 and a vector of F32."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 2)
    head += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    head += text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("é")
    head += text("blk.0.w") + struct.pack("<IQQIQ", 2, 32, 2, 8, 0)
    head += text("norm") + struct.pack("<IQIQ", 1, 4, 0, 96)
    return head + bytes(-len(head) % 32 + 96 + 16)


def _cases(*patterns: str) -> Iterator[pathlib.Path]:
    for pattern in patterns:
        yield from sorted(CASES.glob(f"*/in/**/{pattern}"))


def _safetensors_header() -> Iterator[bytes]:
    yield _safetensors(
        {
            "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "b\\n": {"dtype": "F4", "shape": [4], "data_offsets": [24, 26]},
            "c": ["U8", [], [26, 27]],
        },
        {"format": "pt"},
    )
    for path in _cases("*.safetensors"):
        data = path.read_bytes()
        yield data[:BYTES_MAX] if len(data) < 4096 else b""
        (header_bytes,) = struct.unpack("<Q", data[:8].ljust(8, b"\0"))
        yield data[: 8 + min(header_bytes, BYTES_MAX)]


def _checkpoint() -> Iterator[bytes]:
    entries = {
        "model.layers.0.w": {"dtype": "F8_E4M3", "shape": [256, 128], "data_offsets": [0, 32768]},
        "model.layers.0.w_scale_inv": {
            "dtype": "F32",
            "shape": [2, 1],
            "data_offsets": [32768, 32776],
        },
    }
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    yield json.dumps(config).encode() + b"\0" + _safetensors(entries)
    yield b"\0" + _gguf()
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


def _exponent_code() -> Iterator[bytes]:
    for path in sorted(FORMAT_TESTS.glob("golden/exponent_code*/*.coded")):
        yield bytes([path.name.startswith("f32")]) + path.read_bytes()
    bf16 = (FORMAT_TESTS / "golden/exponent_code/bf16_two_tiles.raw").read_bytes()
    yield b"\0" + bf16[: BYTES_MAX - 1]


def _zstd_code() -> Iterator[bytes]:
    dtypes = ("u8", "bf16", "f32", "i64")
    for path in sorted(FORMAT_TESTS.glob("golden/zstd_code*/*.coded")):
        word = path.name.split(".")[0].split("_")[0]
        yield bytes([dtypes.index(word) if word in dtypes else 1]) + path.read_bytes()


def _none_made() -> Iterator[bytes]:
    yield b""  # All of them are in seeds/.


def _gguf_header() -> Iterator[bytes]:
    yield _gguf()
    for path in _cases("*.gguf"):
        data = path.read_bytes()
        yield data
        # With the file's size at its end, as the target reads it.
        for cut in (len(data) * part // 8 for part in range(2, 8)):
            yield data[:cut] + struct.pack("<Q", len(data))


def _torch_pickle() -> bytes:
    """A state dict of one tensor of 2 × 3 floats, by its opcodes."""
    key, name = (b"X" + struct.pack("<I", len(text)) + text for text in (b"0", b"weight"))
    kind, place = b"X\x07\0\0\0storagectorch\nFloatStorage\n", b"X\x03\0\0\0cpuK\x06"
    storage = b"(" + kind + key + place + b"tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage
    tensor += b"K\0K\2K\3\x86K\3K\1\x86\x89ccollections\nOrderedDict\n)RtR"
    return b"\x80\x02}q\0(" + name + tensor + b"u."


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
    yield _torch_pickle()
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
                    entry.write(_torch_pickle())
                archive.writestr("archive/data/0", bytes(24))
            yield file.getvalue()


MAKERS = {
    "checkpoint": _checkpoint,
    "exponent_code": _exponent_code,
    "gguf_header": _gguf_header,
    "hardware_json": _none_made,
    "index": _index,
    "manifest": _manifest,
    "pickle": _pickle,
    "plan_toml": _plan_toml,
    "safetensors_header": _safetensors_header,
    "stages_toml": _none_made,
    "zip_directory": _zip_directory,
    "zstd_code": _zstd_code,
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
