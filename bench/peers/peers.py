"""How each peer loads the model and runs it on a CPU, with all blocks on disk.

Each is driven as its own documentation has it, with the settings that were fastest here. Nothing
is imported before it is asked for: a peer's packages are only on the path of its own process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Forward = Callable[[Tensor], Tensor]  # Token numbers [1, tokens] in, logits [1, tokens, words] out.


@dataclass(frozen=True)
class Folders:
    """The model's folder, and one for what a peer writes of it."""

    model: Path
    copy: Path

    @property
    def checkpoint(self) -> Path:
        return self.model / "model.safetensors"

    def block_count(self) -> int:
        return int(json.loads((self.model / "config.json").read_text())["num_hidden_layers"])


@dataclass(frozen=True)
class Peer:
    """A way to stream the model. `load` gets a model without weights where the peer builds none."""

    imports: tuple[str, ...]  # Modules that are imported before anything is timed.
    load: Callable[[Folders, Any], Forward]
    prepare: Callable[[Folders], object] | None = (
        None  # Writes the peer's copy of the weights, once.
    )
    takes_model: bool = False


def empty_model(config: Any) -> Any:
    """LlamaForCausalLM with its parameters on the meta device and its buffers real."""
    from transformers import LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    with torch.device("meta"):
        model = LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)
    model.model.rotary_emb = LlamaRotaryEmbedding(config)
    return model.eval()


def empty_model_of(folder: Path) -> Any:
    from transformers import AutoConfig

    return empty_model(AutoConfig.from_pretrained(folder))


def logits_of(model: Any) -> Forward:
    def forward(tokens: Tensor) -> Tensor:
        logits: Tensor = model(tokens, use_cache=False).logits
        return logits

    return forward


# --- this project --------------------------------------------------------------------------------


def run_program(*arguments: str | Path) -> None:
    program = Path(sys.executable).with_name("trash-panda")
    subprocess.run([program, "--quiet", *arguments], check=True, stdout=subprocess.DEVNULL)


def plan_on_disk(folders: Folders) -> Path:
    plan = folders.copy / "plan.toml"
    run_program("plan", folders.model, "-f", "-o", plan, "--assign", "disk=*")
    return plan


def prepare_pack(compress: str) -> Callable[[Folders], None]:
    def prepare(folders: Folders) -> None:
        plan, pack = plan_on_disk(folders), folders.copy / "model.panda"
        run_program(
            "repack", folders.model, "--plan", plan, "-o", pack, "--compress", compress, "--force"
        )

    return prepare


def load_pack(folders: Folders, model: Any) -> Forward:
    import trash_panda

    trash_panda.load(folders.copy / "model.panda", model, device="cpu")
    return logits_of(model)


def load_checkpoint(folders: Folders, _: Any) -> Forward:
    import trash_panda

    offloaded = trash_panda.from_pretrained(
        folders.model, plan=folders.copy / "plan.toml", repack="never", device="cpu"
    )
    return logits_of(offloaded.model)


# --- the others ----------------------------------------------------------------------------------


def load_accelerate(folders: Folders, model: Any) -> Forward:
    """Its index points into the checkpoint, as that of transformers does: no copy is made."""
    from accelerate import dispatch_model
    from accelerate.utils import set_module_tensor_to_device
    from safetensors import safe_open

    places = {name: "cpu" for name in ("model.embed_tokens", "model.rotary_emb", "model.norm")}
    places |= {f"model.layers.{i}": "disk" for i in range(folders.block_count())}
    places["lm_head"] = "cpu"
    index = {}
    with safe_open(folders.checkpoint, "pt") as checkpoint:
        for name in checkpoint.keys():  # noqa: SIM118
            if name.startswith("model.layers."):
                file = str(folders.checkpoint)
                index[name] = {"safetensors_file": file, "weight_name": name, "dtype": "bfloat16"}
            else:
                value = checkpoint.get_tensor(name)
                set_module_tensor_to_device(model, name, "cpu", value=value)
    return logits_of(dispatch_model(model, places, offload_index=index))


def load_diffusers(folders: Folders, model: Any) -> Forward:
    from diffusers.hooks import apply_group_offloading
    from safetensors.torch import load_file

    model.load_state_dict(load_file(folders.checkpoint), assign=True)
    cpu = torch.device("cpu")
    apply_group_offloading(
        model.model,
        onload_device=cpu,
        offload_device=cpu,
        offload_type="block_level",
        num_blocks_per_group=1,
        offload_to_disk_path=str(folders.copy),
    )
    return logits_of(model)


def prepare_diffusers(folders: Folders) -> None:
    """It writes its groups when there are none, and finds them the next time."""
    load_diffusers(folders, empty_model_of(folders.model))


GGUF_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def gguf_name(name: str) -> str:
    name = name.removesuffix(".weight")
    if not name.startswith("model.layers."):
        return f"{GGUF_NAMES[name]}.weight"
    _, _, number, rest = name.split(".", 3)
    return f"blk.{number}.{GGUF_NAMES[rest]}.weight"


def prepare_neurostream(folders: Folders) -> None:
    """A GGUF of the same weights for its qwen3 graph, which without norms of q and k is Llama's."""
    import gguf
    from safetensors import safe_open

    config = json.loads((folders.model / "config.json").read_text())
    words = config["vocab_size"]
    writer = gguf.GGUFWriter(folders.copy / "model.gguf", "qwen3", use_temp_file=False)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(words)])
    writer.add_token_types([1] * words)
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    with safe_open(folders.checkpoint, "pt") as checkpoint:
        for name in checkpoint.keys():  # noqa: SIM118
            weight = checkpoint.get_tensor(name)
            if weight.dim() == 1:
                writer.add_tensor(gguf_name(name), weight.float().numpy())
            else:
                writer.add_tensor(
                    gguf_name(name),
                    weight.view(torch.uint8).numpy(),
                    raw_dtype=gguf.GGMLQuantizationType.BF16,
                )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load_neurostream(folders: Folders, _: Any) -> Forward:
    """Whole tensors, the next layer's read ahead, in bf16: faster than its defaults on a CPU."""
    from neurostream import NeuroStream
    from neurostream.model.qwen3 import KVCache

    stream = NeuroStream.load(
        folders.copy / "model.gguf",
        mem_budget="2GB",
        device="cpu",
        compute_dtype=torch.bfloat16,
        block_rows=0,
    )
    blocks = folders.block_count()

    def forward(tokens: Tensor) -> Tensor:
        logits: Tensor = stream.model.forward(tokens[0], KVCache(blocks), last_only=False)
        return logits[None]

    return forward


def load_airllm(folders: Folders, _: Any) -> Forward:
    from airllm import AutoModel

    model = AutoModel.from_pretrained(
        str(folders.model), device="cpu", layer_shards_saving_path=str(folders.copy)
    )
    return logits_of(model.model)


def prepare_airllm(folders: Folders) -> None:
    """It splits the checkpoint when it has not done so before."""
    load_airllm(folders, None)


def load_memopro(folders: Folders, _: Any) -> Forward:
    """Its budget is a quarter of the model, so that it reads nearly all of it in each pass."""
    import memopro.rt.torch

    budget_bytes = folders.checkpoint.stat().st_size // 4
    model = memopro.rt.torch.stream_model(folders.model, budget=f"{budget_bytes}B", device="cpu")
    return logits_of(model)


def prepare_bigsmall(folders: Folders) -> None:
    """Its coded file, and of that the form that its documentation calls fastest to decode."""
    import bigsmall
    from bigsmall.transcode import transcode

    coded = folders.copy / "model.bs"
    bigsmall.compress(str(folders.checkpoint), str(coded), progress=False)
    workers = os.cpu_count() or 1
    transcode(coded, folders.copy / "model.bsr", mode="speed", progress=False, workers=workers)
    coded.unlink()


def load_bigsmall(folders: Folders, _: Any) -> Forward:
    """Without its prefetch, which waits for 120 s at the start of each pass but the first."""
    from bigsmall.tiered_streaming import TieredStreamingModel

    model = TieredStreamingModel(
        folders.copy / "model.bsr", folders.model, device="cpu", prefetch=False
    )
    return logits_of(model.model)


def load_earlier(folders: Folders, model: Any) -> Forward:
    """Tables that no checkpoint holds abort its loading unless they are named."""
    import trash_panda

    plan = trash_panda.plan(model, str(folders.checkpoint))
    plan.assign(trash_panda.Tier.DISK, indices=range(folders.block_count()))
    trash_panda.stream_load(
        model,
        str(folders.checkpoint),
        plan=plan,
        device="cpu",
        skip_prefixes=("model.rotary_emb.",),
    )
    trash_panda.install_offload(model, plan, device="cpu")
    return logits_of(model)


OURS = {
    "pack": Peer(("trash_panda._assemble",), load_pack, prepare_pack("none"), takes_model=True),
    "coded": Peer(
        ("trash_panda._assemble",), load_pack, prepare_pack("exponent"), takes_model=True
    ),
    "checkpoint": Peer(("trash_panda._assemble",), load_checkpoint, plan_on_disk),
}
PEERS = {
    "accelerate": Peer(("accelerate.utils",), load_accelerate, takes_model=True),
    "diffusers": Peer(("diffusers.hooks",), load_diffusers, prepare_diffusers, takes_model=True),
    "neurostream": Peer(
        ("neurostream", "neurostream.compute.triton_kernels"),
        load_neurostream,
        prepare_neurostream,
    ),
    "airllm": Peer(
        ("airllm", "airllm.persist.safetensor_model_persister"), load_airllm, prepare_airllm
    ),
    "memopro": Peer(("memopro.rt.torch", "memopro.hibernate._source"), load_memopro),
    "bigsmall": Peer(("bigsmall.tiered_streaming",), load_bigsmall, prepare_bigsmall),
    "dumpsterpanda": Peer(("trash_panda.offload.loader",), load_earlier, takes_model=True),
}
