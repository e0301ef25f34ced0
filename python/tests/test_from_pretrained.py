"""from_pretrained(): a folder or a cached model, planned, packed and streaming in one call."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trash_panda
from architectures import ARCHITECTURES, build, outputs
from conftest import write_tiers
from models import assert_bit_equal

transformers = pytest.importorskip("transformers")

LLAMA = ARCHITECTURES["llama tied"]
LAYERS = 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "llama"
    build(LLAMA).save_pretrained(path)
    return path


def resident(folder: Path, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    return transformers.LlamaForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def assert_equal(model: nn.Module, expected: nn.Module) -> None:
    pairs = zip(outputs(model, LLAMA.inputs()), outputs(expected, LLAMA.inputs()), strict=True)
    for ours, theirs in pairs:
        assert_bit_equal(ours, theirs)


def test_a_folder_becomes_a_streaming_model(folder: Path) -> None:
    expected = resident(folder)
    arguments = {**LLAMA.inputs(), "max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with trash_panda.from_pretrained(folder) as offloaded:
        model = offloaded.model
        assert type(model) is transformers.LlamaForCausalLM
        assert not model.training
        assert (model.dtype, model.device.type) == (torch.bfloat16, "cpu")
        assert model.lm_head.weight is model.model.embed_tokens.weight
        assert_equal(model, expected)
        assert torch.equal(model.generate(**arguments), expected.generate(**arguments))
    assert folder.with_name("llama.panda").is_dir()


def test_the_pack_is_used_again_until_the_checkpoint_changes(folder: Path) -> None:
    manifest = folder.with_name("llama.panda") / "manifest.json"
    trash_panda.from_pretrained(folder).close()
    first = manifest.read_text()
    with trash_panda.from_pretrained(str(folder)) as offloaded:
        assert manifest.read_text() == first
        assert_equal(offloaded.model, resident(folder))
    torch.manual_seed(9)
    LLAMA.make().save_pretrained(folder)
    with trash_panda.from_pretrained(folder) as offloaded:
        assert manifest.read_text() != first
        assert_equal(offloaded.model, resident(folder))


def test_what_is_no_pack_is_not_replaced(folder: Path) -> None:
    manifest = folder.with_name("llama.panda") / "manifest.json"
    trash_panda.from_pretrained(folder).close()
    damaged = manifest.read_text()[:-20]
    manifest.write_text(damaged)
    with pytest.raises(trash_panda.CheckpointError, match="remove that folder"):
        trash_panda.from_pretrained(folder)
    assert manifest.read_text() == damaged


@pytest.mark.parametrize("tiers", [["disk"] * LAYERS, ["disk", "ram"] * 2])
def test_a_plan_s_tiers_are_used(folder: Path, tmp_path: Path, tiers: list[str]) -> None:
    trash_panda.from_pretrained(folder).close()
    pack = folder.with_name("llama.panda")
    plan = write_tiers(pack / "plan.toml", tiers, tmp_path / "plan.toml")
    for _ in range(2):  # With the pack that there is, then with one that is made for the plan.
        with trash_panda.from_pretrained(folder, plan=plan) as offloaded:
            assert_equal(offloaded.model, resident(folder))
            assert_equal(offloaded.model, resident(folder))
            assert offloaded.stats()["pass_read_bytes_disk"] > 0
        shutil.rmtree(pack)


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("fp32", torch.float32), (torch.float16, torch.float16), ("keep", torch.float32)],
)
def test_the_dtype_is_that_of_the_resident_model(
    folder: Path, dtype: str | torch.dtype, expected: torch.dtype
) -> None:
    with trash_panda.from_pretrained(folder, dtype=dtype) as offloaded:
        assert offloaded.model.dtype == expected
        assert_equal(offloaded.model, resident(folder, expected))


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    build(LLAMA).save_pretrained(folder, max_shard_size="60KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    with trash_panda.from_pretrained(folder) as offloaded:
        assert_equal(offloaded.model, resident(folder))


@pytest.mark.parametrize("shard_size", ["60KB", "5GB"])
def test_a_variant_may_be_chosen(folder: Path, shard_size: str) -> None:
    torch.manual_seed(9)
    LLAMA.make().half().save_pretrained(folder, variant="fp16", max_shard_size=shard_size)
    expected = transformers.LlamaForCausalLM.from_pretrained(
        folder, variant="fp16", dtype=torch.bfloat16
    )
    with trash_panda.from_pretrained(folder) as offloaded:
        assert_equal(offloaded.model, resident(folder))
    for repack in ("never", "auto"):
        with trash_panda.from_pretrained(folder, variant="fp16", repack=repack) as offloaded:
            assert_equal(offloaded.model, expected.eval())
    assert folder.with_name("llama.fp16.panda").is_dir()
    with pytest.raises(trash_panda.CheckpointError, match=r"has no model\.bf16\.safetensors"):
        trash_panda.from_pretrained(folder, variant="bf16")


@pytest.mark.parametrize("cls", ["LlamaModel", "AutoModel", transformers.LlamaModel])
def test_another_class_may_be_chosen(folder: Path, cls: object) -> None:
    expected = transformers.LlamaModel.from_pretrained(folder, dtype=torch.bfloat16)
    with trash_panda.from_pretrained(folder, cls=cls) as offloaded:
        assert type(offloaded.model) is transformers.LlamaModel
        assert_equal(offloaded.model, expected)


def test_the_generation_config_of_the_folder_counts(folder: Path) -> None:
    file = folder / "generation_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "max_new_tokens": 3}))
    with trash_panda.from_pretrained(folder) as offloaded:
        assert offloaded.model.generation_config.max_new_tokens == 3


@pytest.mark.parametrize("shard_size", ["60KB", "5GB"])
def test_never_streams_from_the_checkpoint_and_writes_nothing(
    tmp_path: Path, shard_size: str
) -> None:
    folder = tmp_path / "llama"
    build(LLAMA).save_pretrained(folder, max_shard_size=shard_size)
    expected = resident(folder)
    plan = trash_panda.plan(None, folder)
    for index, block in enumerate(plan.blocks):
        plan.assign("disk" if index % 2 else "ram", prefixes=[block.prefix])
    for chosen in ("auto", plan):
        with trash_panda.from_pretrained(folder, repack="never", plan=chosen) as offloaded:
            for _ in range(2):
                assert_equal(offloaded.model, expected)
    assert offloaded.stats()["pass_read_bytes_disk"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["llama"]


def test_never_says_what_only_a_pack_can_hold(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    build(LLAMA).save_pretrained(folder)
    torch.save(build(LLAMA).state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(trash_panda.UnsupportedFormatError, match="repack"):
        trash_panda.from_pretrained(folder, repack="never")


def test_never_uses_the_pack_that_is_there(folder: Path) -> None:
    trash_panda.from_pretrained(folder, repack="require").close()
    with trash_panda.from_pretrained(folder, repack="never") as offloaded:
        assert_equal(offloaded.model, resident(folder))


@pytest.fixture
def hub(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the Hugging Face hub with the model as org/tiny, as the hub's client lays it."""
    constants = pytest.importorskip("huggingface_hub.constants")
    cache = tmp_path / "hub"
    revision = "0123456789abcdef0123456789abcdef01234567"
    repo = cache / "models--org--tiny"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text(revision)
    (repo / "blobs").mkdir()
    snapshot = repo / "snapshots" / revision / "text"
    snapshot.mkdir(parents=True)
    for file in folder.iterdir():
        shutil.copy(file, repo / "blobs" / file.name)
        os.symlink(Path("../../../blobs") / file.name, snapshot / file.name)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setenv("TRASH_PANDA_PACKS", str(tmp_path / "packs"))
    return cache


@pytest.mark.parametrize("name", ["org/tiny", "org/tiny@main"])
def test_a_cached_model_is_found_and_left_alone(
    hub: Path, folder: Path, tmp_path: Path, name: str
) -> None:
    files = sorted(hub.rglob("*"))
    with trash_panda.from_pretrained(name, subfolder="text") as offloaded:
        assert_equal(offloaded.model, resident(folder))
    assert sorted(hub.rglob("*")) == files
    (pack,) = (tmp_path / "packs").iterdir()
    assert pack.name == name.replace("@", "/").replace("/", "--") + "--text.panda"


def test_a_model_that_is_not_cached_is_told_with_the_command(hub: Path) -> None:
    with pytest.raises(trash_panda.CheckpointError, match="hf download org/other"):
        trash_panda.from_pretrained("org/other")


@pytest.mark.parametrize(
    ("spoil", "error", "told"),
    [
        (lambda f: (f / "config.json").unlink(), trash_panda.CheckpointError, "no config.json"),
        (
            lambda f: (f / "config.json").write_text("{"),
            trash_panda.CheckpointError,
            "can't read .*config.json",
        ),
        (
            lambda f: (f / "model.safetensors").unlink(),
            trash_panda.CheckpointError,
            "llama",
        ),
        (
            lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 64),
            trash_panda.TrashPandaError,
            "model.safetensors",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_told(
    folder: Path, spoil: object, error: type[Exception], told: str
) -> None:
    spoil(folder)
    with pytest.raises(error, match=told):
        trash_panda.from_pretrained(folder)
    assert not folder.with_name("llama.panda").exists()


def test_wrong_arguments_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="repack is 'maybe'"):
        trash_panda.from_pretrained(folder, repack="maybe")
    with pytest.raises(ValueError, match="compute_dtype is 'int4'"):
        trash_panda.from_pretrained(folder, dtype="int4")
    with pytest.raises(trash_panda.UnsupportedFormatError, match="no class Other"):
        trash_panda.from_pretrained(folder, cls="Other")
    with pytest.raises(trash_panda.PlanError, match=r"can't read plan absent\.toml"):
        trash_panda.from_pretrained(folder, plan="absent.toml")
    with pytest.raises(trash_panda.PlanError, match="by hand"):
        trash_panda.from_pretrained(folder, plan=trash_panda.Plan.manual(disk=["model.layers.0"]))
    with pytest.raises(trash_panda.CheckpointError, match="no folder unet"):
        trash_panda.from_pretrained(folder, subfolder="unet")
    with pytest.raises(trash_panda.CheckpointError, match="nowhere is no folder"):
        trash_panda.from_pretrained("nowhere")


def test_building_leaves_the_random_state_alone(folder: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with trash_panda.from_pretrained(folder):
        assert torch.equal(torch.rand(3), expected)


def test_a_pipeline_of_transformers_takes_the_model(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {f"w{i}": i for i in range(100)} | {"<unk>": 100}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<unk>"
    )
    texts = []
    with trash_panda.from_pretrained(folder) as offloaded:
        for model in (offloaded.model, resident(folder)):
            generate = transformers.pipeline("text-generation", model=model, tokenizer=fast)
            (answer,) = generate("w1 w2 w3", max_new_tokens=5, do_sample=False)
            texts.append(answer["generated_text"])
        assert texts[0] == texts[1] != "w1 w2 w3"


def test_a_streaming_model_is_not_saved(folder: Path, tmp_path: Path) -> None:
    offloaded = trash_panda.from_pretrained(folder)
    with pytest.raises(trash_panda.TrashPandaError, match="in a pack, not in memory"):
        offloaded.model.save_pretrained(tmp_path / "saved")
    offloaded.close()
    with pytest.raises(trash_panda.ReleasedError):
        offloaded.model.save_pretrained(tmp_path / "saved")
    assert not list((tmp_path / "saved").glob("*.safetensors"))


def test_what_was_loaded_is_told(folder: Path) -> None:
    with trash_panda.from_pretrained(folder) as offloaded:
        plan = folder.with_name("llama.panda") / "plan.toml"
        assert offloaded.plan.to_toml() == plan.read_text()
        offloaded.handle.remove()
        assert offloaded.closed
    for hooks in (offloaded.model._forward_pre_hooks, offloaded.model._forward_hooks):
        assert not hooks


def write_fp8(folder: Path, granularity: str) -> dict[str, Tensor]:
    """Quantizes the checkpoint's projections in place; returns the weights that the formula gives.

    By block as DeepSeek publishes them, `weight_scale_inv`, else as llm-compressor does.
    """
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    expected = {}
    for name in [name for name in state if name.endswith("_proj.weight")]:
        weight = state[name]
        rows, columns = weight.shape
        shape = {
            "tensor": (1, 1),
            "channel": (rows, 1),
            "block": (-(-rows // 32), -(-columns // 32)),
        }
        scale = torch.rand(shape[granularity]) / 100 + 0.001
        grid = scale
        if granularity == "block":
            grid = scale.repeat_interleave(32, 0).repeat_interleave(32, 1)[:rows, :columns]
        codes = (weight / grid).clamp(-448, 448).to(torch.float8_e4m3fn)
        expected[name] = (codes.to(torch.float32) * grid).to(torch.bfloat16)
        ending = ".weight_scale_inv" if granularity != "channel" else ".weight_scale"
        stored = scale.reshape(()) if granularity == "tensor" else scale
        state |= {name: codes, name.replace(".weight", ending): stored}
    save_file(state, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    settings = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    if granularity == "tensor":
        settings = {"quant_method": "fp8", "weight_block_size": None}
    if granularity == "channel":
        settings = {"quant_method": "compressed-tensors", "format": "float-quantized"}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": settings}))
    return expected


@pytest.mark.parametrize("granularity", ["tensor", "channel", "block"])
def test_an_fp8_checkpoint_of_the_hub_is_expanded(folder: Path, granularity: str) -> None:
    expected = resident(folder)
    weights = write_fp8(folder, granularity)
    for name, weight in weights.items():
        expected.get_parameter(name).data.copy_(weight)
    with trash_panda.from_pretrained(folder) as offloaded:
        assert offloaded.unexpected == []
        assert_equal(offloaded.model, expected)
    if granularity == "channel":
        return  # Which transformers leaves to the package compressed-tensors.
    config = transformers.FineGrainedFP8Config(
        dequantize=True, weight_block_size=(32, 32) if granularity == "block" else None
    )
    reference = transformers.LlamaForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, quantization_config=config
    )
    for name, weight in weights.items():
        theirs = reference.get_parameter(name)
        torch.testing.assert_close(weight, theirs, rtol=2**-7, atol=0)
