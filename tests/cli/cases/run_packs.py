"""Packs sparse checkpoints of the recorded architectures, and makes checkpoints of the packs again.

usage: run_packs.py PROGRAM ARCH_FOLDER [PATTERN]

For every architecture `repack --dry-run` tells the size that the format's rules give. Those of up
to TP_PACK_GB (0.3) are packed, verified, compared with their source and unpacked, and every byte of
the result is compared; TP_PACK_GB=3 takes some minutes and 6 GB of space.

Exit 0: all of that holds; 1: not so, with what differs; 77: there are no recorded architectures.
"""

import fnmatch
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from program import Program
from run_cases import EXIT_SKIPPED

# docs/pack_format.md: tensors lie on multiples of the first, extents of the second; tensors outside
# of blocks from 16 MiB on are extents of their own.
TENSOR_ALIGNMENT = 256
PAGE_BYTES = 4096
OWN_EXTENT_BYTES_MIN = 16 << 20
PIECE_BYTES = 1 << 24
# Markers of a file, which are no parameters.
MARKERS = ("scaled_fp8",)


def packed_gb_max() -> float:
    return float(os.environ.get("TP_PACK_GB", "0.3"))


def read_header(path: pathlib.Path) -> tuple[int, dict[str, dict]]:
    """Where the data of a safetensors file begin, and its tensors by name."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return 8 + size, header


def model_files(model: pathlib.Path) -> list[pathlib.Path]:
    return sorted(model.glob("*.safetensors"))


def mark_tensors(model: pathlib.Path) -> None:
    """Gives every tensor bytes of its own at both ends, so that one in another's place is noticed.

    Their values are small as bf16, f16 and f32, as those of weights are.
    """
    for path in model_files(model):
        begin, header = read_header(path)
        with path.open("r+b") as file:
            for name, entry in header.items():
                first, last = (begin + offset for offset in entry["data_offsets"])
                digest = bytearray(hashlib.sha256(name.encode()).digest())
                digest[1::2] = bytes(value & 0x3F for value in digest[1::2])
                mark = bytes(digest[: min(len(digest), last - first)])
                file.seek(first)
                file.write(mark)
                file.seek(last - len(mark))
                file.write(mark)


def expected_extents(document: dict) -> list[int]:
    """How long each extent of a pack without codes is, by what `inspect --tensors` says.

    A tensor begins where the one before it ends, rounded up; so the order makes no difference.
    """
    sizes: dict[str, int] = {}
    for tensor in document["tensors"]:
        if tensor["name"] in MARKERS:
            continue
        own = not tensor["block"] and tensor["size_bytes"] >= OWN_EXTENT_BYTES_MIN
        extent = f"own {tensor['name']}" if own else f"block {tensor['block']}"
        rounded = -(-tensor["size_bytes"] // TENSOR_ALIGNMENT) * TENSOR_ALIGNMENT
        sizes[extent] = sizes.get(extent, 0) + rounded
    return [max(PAGE_BYTES, -(-size // PAGE_BYTES) * PAGE_BYTES) for size in sizes.values()]


def size_differences(dry_run: dict, document: dict) -> list[str]:
    extents = expected_extents(document)
    count = sum(tier["extent_count"] for tier in dry_run["tiers"].values())
    stored = sum(tier["stored_bytes"] for tier in dry_run["tiers"].values())
    shards = sum(shard["size_bytes"] for shard in dry_run["shards"])
    headers = dry_run["total_bytes"] - stored
    # A header says of every tensor its name, dtype, shape and place.
    names = sum(len(tensor["name"]) + len('"":{"dtype":"","shape":[],"data_offsets":[,]},')
                for tensor in document["tensors"])  # fmt: skip
    differences = []
    if (count, stored) != (len(extents), sum(extents)):
        differences.append(
            f"dry run: {stored} bytes in {count} extents, by the rules {sum(extents)} in "
            f"{len(extents)}"
        )
    if shards != dry_run["total_bytes"] or headers % PAGE_BYTES or headers < names:
        differences.append(f"dry run: {shards} bytes of shards, {headers} of headers, {dry_run}")
    return differences


def tensor_bytes(path: pathlib.Path, first: int, last: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(first)
        for at in range(first, last, PIECE_BYTES):
            yield file.read(min(PIECE_BYTES, last - at))


def file_differences(source: pathlib.Path, unpacked: pathlib.Path) -> list[str]:
    """Where the tensors of two safetensors files differ in name, dtype, shape or bytes."""
    source_begin, wanted = read_header(source)
    begin, found = read_header(unpacked)
    if wanted.keys() != found.keys():
        return [f"{source.name}: other tensors: {sorted(wanted.keys() ^ found.keys())[:3]}"]
    differences = []
    for name, entry in wanted.items():
        pieces = zip(
            tensor_bytes(source, *(source_begin + at for at in entry["data_offsets"])),
            tensor_bytes(unpacked, *(begin + at for at in found[name]["data_offsets"])),
            strict=False,  # Of one dtype and shape they are equally long.
        )
        is_alike = all(found[name][key] == entry[key] for key in ("dtype", "shape"))
        if not is_alike or any(one != other for one, other in pieces):
            differences.append(f"{source.name}: {name} was changed")
    return differences


def unpacked_differences(model: pathlib.Path, unpacked: pathlib.Path) -> list[str]:
    files = model_files(model)
    if [file.name for file in files] != [file.name for file in model_files(unpacked)]:
        return ["unpacked: other files than the source has"]
    return [line for file in files for line in file_differences(file, unpacked / file.name)]


def pack_differences(program: Program, work: pathlib.Path) -> list[str]:
    """Packs, verifies, compares and unpacks `work`/model."""
    model, pack, unpacked = work / "model", work / "pack", work / "unpacked"
    mark_tensors(model)
    for compress in ("none", "exponent"):
        for command, *arguments in (
            ("repack", model, "-o", pack, "--compress", compress, "--reserve", "0"),
            ("verify", pack),
            ("verify", pack, "--source", model),
            ("unpack", pack, "-o", unpacked, "--reserve", "0"),
        ):
            run = program.run(command, *map(str, arguments))
            if run.exit_code != 0:
                return [f"{command} --compress {compress}: {run.err.strip()}"]
        differences = unpacked_differences(model, unpacked)
        shutil.rmtree(pack)
        shutil.rmtree(unpacked)
        if differences:
            return [f"--compress {compress}: {line}" for line in differences]
    return []


def check(program: Program, folder: pathlib.Path, name: str, is_packed: bool) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="trash-panda-pack-") as work:
        model = pathlib.Path(work, "model")
        subprocess.run([sys.executable, folder / "make_sparse.py", name, model],
                       check=True, capture_output=True)  # fmt: skip
        inspected = program.run("inspect", model, "--tensors")
        dry_run = program.run(
            "repack", model, "-o", pathlib.Path(work, "pack"), "--compress", "none", "--dry-run"
        )
        if inspected.exit_code != 0 or dry_run.exit_code != 0:
            return [f"inspect, dry run: {inspected.err.strip()} {dry_run.err.strip()}"]
        differences = size_differences(dry_run.document, inspected.document)
        if is_packed:
            differences += pack_differences(program, pathlib.Path(work))
        return differences


def main() -> int:
    program = Program(pathlib.Path(sys.argv[1]))
    folder = pathlib.Path(sys.argv[2])
    pattern = sys.argv[3] if len(sys.argv) > 3 else "*"
    if not (folder / "expected_groups.json").exists():
        print(f"skipped: no recorded architectures in {folder}")
        return EXIT_SKIPPED
    recorded = json.loads((folder / "expected_groups.json").read_text(encoding="utf-8"))
    names = [name for name in recorded if fnmatch.fnmatch(name, pattern)]
    packed_count = failed = 0
    # One after the other: each keeps the drive busy, and takes three times its size of space.
    for name in names:
        is_packed = recorded[name]["total"] <= packed_gb_max() * 1e9
        differences = check(program, folder, name, is_packed)
        what = "size as by the rules" + (", packed and back" if is_packed else "")
        print(f"{name:<32}{'; '.join(differences[:5]) or what}", flush=True)
        packed_count += is_packed
        failed += bool(differences)
    print(f"{len(names)} architectures, {packed_count} packed, {failed} failed")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
