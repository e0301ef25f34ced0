"""One peer in a process of its own: writes its copy of the weights, or runs passes and times them.

    python bench/peers/driver.py PEER prepare|measure --model FOLDER --copy FOLDER [...]

run.py starts this with the peer's packages first on the path. `measure` prints one line of JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from peers import OURS, PEERS, Folders, empty_model, empty_model_of
from safetensors.torch import save_file

TOKENS = 8


def drop_page_cache() -> None:
    Path("/proc/sys/vm/drop_caches").write_text("1")


def bytes_read() -> int:
    """What this process has had read from drives; what came from the page cache is not in it."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


class Passes:
    """Seconds, CPU seconds and bytes of each pass.

    Whoever reads ahead goes on reading between passes, while nothing is timed. Those bytes are
    counted for the next pass, in `ahead_bytes`, so that they can be charged to it.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu_s: list[float] = []
        self.read_bytes: list[int] = []
        self.ahead_bytes: list[int] = []
        self.end_bytes = bytes_read()

    def run(self, forward: Callable[[], torch.Tensor]) -> torch.Tensor:
        begin_bytes, cpu_s, start_s = bytes_read(), time.process_time(), time.perf_counter()
        result = forward()
        self.seconds.append(time.perf_counter() - start_s)
        self.cpu_s.append(time.process_time() - cpu_s)
        self.ahead_bytes.append(begin_bytes - self.end_bytes)
        self.end_bytes = bytes_read()
        self.read_bytes.append(self.end_bytes - begin_bytes)
        return result


def warm_up(tokens: torch.Tensor) -> None:
    """Computes with a very small model: the code of torch and transformers is then in memory."""
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=64,
    )  # fmt: skip
    empty_model(config).to_empty(device="cpu")(tokens, use_cache=False)


def measure(name: str, folders: Folders, passes: int, logits_file: Path) -> None:
    peer = (OURS | PEERS)[name]
    tokens = torch.arange(TOKENS)[None]
    with torch.inference_mode():
        warm_up(tokens)
        drop_page_cache()
        start_s = time.perf_counter()
        model = empty_model_of(folders.model) if peer.takes_model else None
        built_s = time.perf_counter()
        forward = peer.load(folders, model)
        loaded_s = time.perf_counter()
        results = Passes()
        # The first pass follows at once: between load and pass there is no time to read ahead in.
        logits = results.run(lambda: forward(tokens))
        first_s = time.perf_counter()
        for _ in range(passes - 1):
            drop_page_cache()
            logits = results.run(lambda: forward(tokens))
    logits = logits.to(torch.bfloat16).contiguous()
    save_file({"logits": logits}, logits_file)
    line = {
        "peer": name,
        "build_s": built_s - start_s,
        "load_s": loaded_s - built_s,
        "first_result_s": first_s - built_s,
        "pass_s": results.seconds,
        "cpu_s": results.cpu_s,
        "read_bytes": results.read_bytes,
        "ahead_bytes": results.ahead_bytes,
        "digest": hashlib.sha256(logits.view(torch.uint8).numpy().tobytes()).hexdigest()[:16],
    }
    print(json.dumps(line), flush=True)
    os._exit(0)  # Some peers' threads never end.


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peer", choices=[*OURS, *PEERS])
    parser.add_argument("step", choices=["prepare", "measure"])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--copy", type=Path, required=True)
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--logits", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    folders = Folders(arguments.model, arguments.copy)
    peer = (OURS | PEERS)[arguments.peer]
    for name in peer.imports:
        importlib.import_module(name)
    if arguments.step == "measure":
        measure(arguments.peer, folders, arguments.passes, arguments.logits)
    elif peer.prepare is not None:
        peer.prepare(folders)


if __name__ == "__main__":
    main()
