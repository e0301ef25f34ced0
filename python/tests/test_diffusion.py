"""Architectures of diffusers, tiny and random: streamed equals resident, bit for bit."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import trash_panda
from conftest import PackFactory, write_tiers
from diffusion import DIFFUSION, Diffusion, build, outputs
from models import assert_bit_equal, on_meta
from trash_panda import _diffusion

diffusers = pytest.importorskip("diffusers")


@pytest.fixture(scope="module", params=DIFFUSION.values(), ids=DIFFUSION.keys())
def diffusion(request: pytest.FixtureRequest) -> Diffusion:
    chosen: Diffusion = request.param
    return chosen


@pytest.fixture(scope="module")
def folder(diffusion: Diffusion, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A part of a pipeline's folder."""
    pipeline = tmp_path_factory.mktemp("pipeline")
    build(diffusion).save_pretrained(pipeline / "part")
    return pipeline


@pytest.mark.parametrize("tiers", ["auto", "disk", "mixed"])
def test_equals_from_pretrained(
    diffusion: Diffusion, folder: Path, tmp_path: Path, tiers: str
) -> None:
    plan: str | Path = "auto"
    if tiers != "auto":
        planned = folder / "part.panda" / "plan.toml"
        count = planned.read_text().count("[[block]]")
        assert count >= 3
        each = {"disk": ["disk"], "mixed": ["disk", "ram"]}[tiers]
        plan = write_tiers(planned, (each * count)[:count], tmp_path / "plan.toml")
    cls = getattr(diffusers, diffusion.cls)
    resident = cls.from_pretrained(folder, subfolder="part", torch_dtype=torch.bfloat16).eval()
    expected = outputs(diffusion, resident)
    with trash_panda.from_pretrained(folder, subfolder="part", plan=plan) as offloaded:
        assert type(offloaded.model) is cls
        assert offloaded.model.dtype == torch.bfloat16
        assert offloaded.unexpected == []
        for _ in range(2):
            actual = outputs(diffusion, offloaded.model)
            assert len(actual) == len(expected) > 0
            for ours, theirs in zip(actual, expected, strict=True):
                assert_bit_equal(ours, theirs)


def test_keys_of_old_checkpoints_are_renamed(packs: PackFactory) -> None:
    vae = DIFFUSION["vae"]
    source = build(vae)
    state = source.state_dict()
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    for key in list(state):
        for new, old in names.items():
            if f".attentions.0.{new}." in key:
                state[key.replace(f".{new}.", f".{old}.")] = state.pop(key)
    assert any(".proj_attn." in key for key in state)
    pack = packs.pack(packs.checkpoint(state))
    model = on_meta(vae.make)
    expected = outputs(vae, source.to(torch.bfloat16))
    with trash_panda.load(pack, model):
        for ours, theirs in zip(outputs(vae, model), expected, strict=True):
            assert_bit_equal(ours, theirs)


def test_a_pipeline_s_folder_needs_a_part(folder: Path) -> None:
    (folder / "model_index.json").write_text("{}")
    with pytest.raises(trash_panda.CheckpointError, match=r"subfolder=\"transformer\""):
        trash_panda.from_pretrained(folder)


@pytest.fixture(scope="module")
def pixart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole pipeline's folder, which needs no text encoder."""
    torch.manual_seed(1)
    transformer = diffusers.PixArtTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=8,
        in_channels=4,
        out_channels=8,
        num_layers=4,
        cross_attention_dim=32,
        sample_size=8,
        caption_channels=16,
    )
    folder = tmp_path_factory.mktemp("pixart") / "pipe"
    diffusers.PixArtAlphaPipeline(
        None, None, build(DIFFUSION["vae"]), transformer, diffusers.DPMSolverMultistepScheduler()
    ).save_pretrained(folder)
    return folder


def latents(pipe: Any) -> torch.Tensor:
    embeds = torch.linspace(-1, 1, 5 * 16).reshape(1, 5, 16).bfloat16()
    mask = torch.ones(1, 5, dtype=torch.int64)
    pipe.set_progress_bar_config(disable=True)
    result: torch.Tensor = pipe(
        None,
        negative_prompt=None,
        prompt_embeds=embeds,
        prompt_attention_mask=mask,
        negative_prompt_embeds=-embeds,
        negative_prompt_attention_mask=mask,
        num_inference_steps=3,
        height=16,
        width=16,
        use_resolution_binning=False,
        generator=torch.manual_seed(7),
        output_type="latent",
    ).images
    return result


def resident(folder: Path, **parts: Any) -> Any:
    return diffusers.PixArtAlphaPipeline.from_pretrained(
        folder, torch_dtype=torch.bfloat16, **parts
    ).to("cpu")


def test_a_pipeline_of_diffusers_gives_the_same_latents(pixart: Path) -> None:
    """Its large part streams and is handed to the pipeline's class."""
    plan = trash_panda.plan(None, pixart / "transformer")
    plan.assign("disk", indices=[0, 2])
    with trash_panda.from_pretrained(pixart, subfolder="transformer", plan=plan) as streamed:
        ours = latents(resident(pixart, transformer=streamed.model))
        assert streamed.stats()["pass_count"] == 3
    assert_bit_equal(ours, latents(resident(pixart)))


def test_pipeline_streams_the_parts_that_it_is_told(pixart: Path) -> None:
    plan = trash_panda.plan(None, pixart / "transformer")
    plan.assign("disk", indices=[0, 2])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*torch_dtype")
        pipe = trash_panda.pipeline(pixart, plans={"transformer": plan}, device="cpu")
    assert type(pipe) is diffusers.PixArtAlphaPipeline
    assert list(pipe.offloaded) == ["transformer"]
    with pipe.offloaded["transformer"] as streamed:
        assert pipe.transformer is streamed.model
        assert_bit_equal(latents(pipe), latents(resident(pixart)))
        assert streamed.stats()["pass_count"] == 3
        assert streamed.stats()["pass_read_bytes_disk"] > 0


def test_pipeline_streams_what_is_large(pixart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trash_panda.pipeline(pixart).offloaded == {}
    sizes = [_diffusion.checkpoint_bytes(pixart / n, None) for n in ("vae", "transformer")]
    monkeypatch.setattr(_diffusion, "LARGE_BYTES", max(sizes))
    (name,) = trash_panda.pipeline(pixart).offloaded
    assert _diffusion.checkpoint_bytes(pixart / name, None) == max(sizes)
    monkeypatch.setattr(_diffusion, "LARGE_BYTES", 1)
    vae = diffusers.AutoencoderKL.from_pretrained(pixart, subfolder="vae")
    pipe = trash_panda.pipeline(pixart, vae=vae)
    assert list(pipe.offloaded) == ["transformer"]
    assert pipe.vae is vae


def test_pipeline_reads_variants_where_there_are_some(pixart: Path, tmp_path: Path) -> None:
    pipe = resident(pixart)
    pipe.save_pretrained(tmp_path / "pipe", variant="bf16")
    whole = tmp_path / "pipe" / "vae" / "diffusion_pytorch_model.safetensors"
    whole.with_name("diffusion_pytorch_model.bf16.safetensors").rename(whole)
    streamed = trash_panda.pipeline(
        tmp_path / "pipe", parts=["vae", "transformer"], variant="bf16", cls="PixArtAlphaPipeline"
    )
    assert_bit_equal(latents(streamed), latents(pipe))


def test_pipeline_says_what_it_needs(pixart: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(trash_panda.CheckpointError, match="it has transformer, vae"):
        trash_panda.pipeline(pixart, parts=["scheduler"])
    with pytest.raises(trash_panda.CheckpointError, match=r"model_index.json.*from_pretrained\(\)"):
        trash_panda.pipeline(folder / "part")
    with pytest.raises(trash_panda.CheckpointError, match="no pipeline in the Hugging Face cache"):
        trash_panda.pipeline("nobody/nothing")
    with pytest.raises(trash_panda.UnsupportedFormatError, match="has no class Nothing"):
        trash_panda.pipeline(pixart, cls="Nothing")
