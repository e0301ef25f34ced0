"""Writes this folder's manifests: the golden ones with one defect each, sealed anew.

Needs the package xxhash. Run it after the golden pack has changed; the results are committed.
"""

import json
import pathlib

import xxhash

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden" / "v1_raw.panda" / "manifest.json"
CODED_GOLDEN = HERE.parent / "golden" / "v1_exponent.panda" / "manifest.json"
INDEX_GOLDEN = HERE.parent / "golden" / "v1_index.panda" / "manifest.json"
ZSTD_GOLDEN = HERE.parent / "golden" / "v1_zstd.panda" / "manifest.json"
SEAL = "manifest_xxh3_128"


def seal(body: str) -> str:
    """Puts the last line after `body`, which ends with a comma and a line break."""
    digest = xxhash.xxh3_128_hexdigest(body.encode())
    return f'{body}  "{SEAL}": "{digest}"\n}}\n'


def sealed(manifest: dict) -> str:
    manifest = {key: value for key, value in manifest.items() if key != SEAL}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)},\n" for key, value in manifest.items()]
    return seal("{\n" + "".join(lines))


def edit(**changes):
    """An edit that sets members by path, such as extents__0__tier="tape"."""

    def apply(manifest: dict) -> None:
        for path, value in changes.items():
            *parents, last = [int(part) if part.isdigit() else part for part in path.split("__")]
            target = manifest
            for part in parents:
                target = target[part]
            if value is ...:
                del target[last]
            else:
                target[last] = value

    return apply


def move_scale(manifest: dict) -> None:
    scale = manifest["extents"][1]["tensors"].pop()
    scale["offset_bytes"] = 512
    manifest["extents"][3]["tensors"].append(scale)


def base_last(manifest: dict) -> None:
    manifest["extents"].append(manifest["extents"].pop(0))


def drop_scale(manifest: dict) -> None:
    manifest["extents"][1]["tensors"].pop()


BIG = 2**64 - 4096
DEFECTS = {
    "alias_is_stored": edit(aliases={"layers.0.weight": "embed.weight"}),
    "alias_target_missing": edit(aliases={"head.weight": "gone.weight"}),
    "extent_after_end": edit(extents__0__offset_bytes=8192),
    "extent_base_after_block": base_last,
    "extent_checksum_short": edit(extents__0__xxh3_128="0123"),
    "extent_codec_unknown": edit(extents__0__codec="lzma"),
    "extent_empty": edit(extents__0__stored_bytes=0, extents__0__raw_bytes=0),
    "extent_hole": edit(extents__3__offset_bytes=12288, shards__3__size_bytes=16384),
    "extent_in_header": edit(extents__0__offset_bytes=0),
    "extent_length_wraps": edit(extents__0__stored_bytes=BIG, extents__0__raw_bytes=BIG),
    "extent_name_twice": edit(extents__3__name="layers.0"),
    "extent_overlap": edit(extents__3__offset_bytes=4096),
    "extent_raw_size_differs": edit(extents__0__raw_bytes=8192),
    "extent_shard_out_of_range": edit(extents__0__shard=4),
    "extent_tier_unknown": edit(extents__0__tier="tape"),
    "extent_unaligned": edit(extents__0__offset_bytes=4352),
    "extent_without_tensors": edit(extents__0__tensors=[]),
    "feature_unknown": edit(required_features=["time-travel"]),
    "format_missing": edit(format=...),
    "format_other": edit(format="grizzly/pack"),
    "page_bytes_no_power_of_two": edit(page_bytes=12288),
    "page_bytes_too_small": edit(page_bytes=512),
    "scale_dtype": edit(extents__1__tensors__1__dtype="I32"),
    "scale_dtype_mx": edit(extents__4__tensors__1__dtype="U8"),
    "scale_exponents_per_block": edit(
        extents__4__tensors__0__scale__block_shape=[2, 32],
        extents__4__tensors__1__shape=[1, 2],
        extents__4__tensors__1__size_bytes=2,
    ),
    "scale_exponents_per_row": edit(
        extents__1__tensors__1__dtype="F8_E8M0", extents__1__tensors__1__size_bytes=2
    ),
    "scale_granularity_unknown": edit(extents__1__tensors__0__scale__granularity="diagonal"),
    "scale_in_other_extent": move_scale,
    "scale_missing": drop_scale,
    "scale_of_nothing": edit(extents__1__tensors__0__scale=...),
    "scale_shape": edit(extents__1__tensors__1__shape=[1, 2]),
    "shard_ends_in_header": edit(shards__0__size_bytes=0),
    "shard_header_too_large": edit(
        shards__0__header_bytes=100_003_840, shards__0__size_bytes=100_007_936
    ),
    "shard_header_unaligned": edit(shards__0__header_bytes=4000),
    "shard_name_twice": edit(shards__1__name="base-00001.safetensors"),
    "shard_name_with_path": edit(shards__0__name="../base-00001.safetensors"),
    "shard_not_covered": edit(shards__0__size_bytes=12288),
    "tensor_dtype_unknown": edit(extents__0__tensors__0__dtype="F7"),
    "tensor_name_reserved": edit(extents__0__tensors__0__name="__pad__.x"),
    "tensor_name_twice": edit(extents__3__tensors__0__name="layers.0.weight"),
    "tensor_offset_fraction": edit(extents__0__tensors__0__offset_bytes=0.5),
    "tensor_offset_negative": edit(extents__0__tensors__0__offset_bytes=-256),
    "tensor_overlap": edit(extents__1__tensors__1__offset_bytes=0),
    "tensor_past_extent": edit(extents__0__tensors__0__offset_bytes=4096),
    "tensor_shape_overflow": edit(extents__0__tensors__0__shape=[2**63, 2**63]),
    "tensor_size_mismatch": edit(extents__0__tensors__0__size_bytes=12),
    "tensor_unaligned": edit(extents__0__tensors__0__offset_bytes=8),
    "version_2": edit(version=2),
}

CODED_DEFECTS = {
    "coded_coding_unknown": edit(extents__1__tensors__1__coding="huffman"),
    "coded_integers": edit(extents__1__tensors__1__dtype="I16"),
    "coded_place_overlaps": edit(extents__1__tensors__1__stored_offset_bytes=0),
    "coded_place_unaligned": edit(extents__1__tensors__1__stored_offset_bytes=320),
    "coded_place_missing": edit(extents__1__tensors__1__stored_offset_bytes=...),
    "coded_place_past_extent": edit(extents__1__tensors__3__stored_offset_bytes=2**63),
    "coded_raw_of_other_size": edit(extents__1__tensors__0__stored_bytes=8),
    "coded_size_too_large": edit(extents__1__tensors__1__stored_bytes=40_000 * 64),
    "coded_size_too_small": edit(extents__1__tensors__1__stored_bytes=64),
    "coded_size_unaligned": edit(extents__1__tensors__1__stored_bytes=30_001),
    "coded_zstd_among_exponents": edit(extents__1__tensors__1__coding="zstd"),
    "source_file_out_of_range": edit(extents__1__tensors__0__source={"file": 7}),
    "source_wider": edit(extents__1__tensors__0__source={"dtype": "F64"}),
    "stored_alias_is_none": edit(stored_aliases={"head.weight": 0}),
    "tensor_name_of_a_code": edit(extents__1__tensors__0__name="__coded__.x"),
}

INDEX_DEFECTS = {
    "index_is_no_object": edit(source_index__members="[1]"),
    "index_is_no_text": edit(source_index__members={}),
    "index_without_name": edit(source_index__name=...),
    "index_with_weight_map": edit(source_index__members='{"weight_map":{}}'),
}

# Of 40,200 codes of fp8.
ZSTD_DEFECTS = {
    "coded_zstd_scale": edit(extents__1__tensors__1__coding="zstd"),
    "coded_zstd_too_large": edit(extents__1__tensors__0__stored_bytes=40_384),
    "coded_zstd_too_small": edit(extents__1__tensors__0__stored_bytes=64),
}


def main() -> None:
    text = GOLDEN.read_text()
    body = text[: text.rindex(f'  "{SEAL}"')]
    assert seal(body) == text, "the golden manifest's own seal is not what this script makes"
    written = {
        "key_twice": seal(body.replace('"page_bytes"', '"page_bytes": 4096,\n  "page_bytes"', 1)),
        "not_an_object": "[]\n",
        "not_json": text[:-3],
        "seal_missing": body.rstrip().rstrip(",") + "\n}\n",
        "seal_wrong": text.replace("layers.0", "layers.9", 1),
    }
    for golden, defects in (
        (GOLDEN, DEFECTS),
        (CODED_GOLDEN, CODED_DEFECTS),
        (INDEX_GOLDEN, INDEX_DEFECTS),
        (ZSTD_GOLDEN, ZSTD_DEFECTS),
    ):
        for name, apply in defects.items():
            manifest = json.loads(golden.read_text())
            apply(manifest)
            written[name] = sealed(manifest)
    for name, content in written.items():
        (HERE / f"{name}.json").write_text(content)


if __name__ == "__main__":
    main()
