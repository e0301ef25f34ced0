"""Stages under one limit of memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import trash_panda
from conftest import PackFactory
from models import Tower, assert_bit_equal, build, tokens
from trash_panda import Pipeline, Stage
from trash_panda._hooks import stream_of

LAYERS = 16
NAMES = ["encode", "denoise", "decode"]
LIMIT = 1_400_000
PAGE = 4096


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture(scope="module")
def checkpoints(shared_packs: PackFactory) -> dict[str, Path]:
    return {
        name: shared_packs.checkpoint(build(tower, seed).state_dict())
        for seed, name in enumerate(NAMES)
    }


def expected(name: str) -> Tensor:
    return build(tower, NAMES.index(name)).to(torch.bfloat16)(tokens())


def make(checkpoints: dict[str, Path], forwards: int | None, **options: object) -> Pipeline:
    stages = [
        Stage(name, tower, checkpoint, forwards=forwards, lookahead=1)
        for name, checkpoint in checkpoints.items()
    ]
    return Pipeline(stages, **{"max_ram": LIMIT, **options})


def wait_until(condition: Callable[[], bool]) -> None:
    """Lets the loader's thread go on. It ends with an error, not never."""
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up, "nothing was loaded early"
        time.sleep(0.005)


def test_three_stages_of_which_no_two_fit_together(checkpoints: dict[str, Path]) -> None:
    with make(checkpoints, forwards=2) as pipeline:
        plans = pipeline.plan()
        assert [len(plan.streamed) for plan in plans.values()] == [LAYERS] * 3
        for name in NAMES:
            with pipeline.run(name) as model:
                ahead = pipeline._ahead
                for _ in range(2):
                    assert_bit_equal(model(tokens()), expected(name))
                if ahead is not None:
                    # By now all blocks of this stage were given back, so all of the next one fit.
                    wait_until(lambda ahead=ahead: ahead.loading_s > 0)
            with pytest.raises(trash_panda.ReleasedError):
                model(tokens())
        report = pipeline.report()
    assert [stage.name for stage in report.stages] == NAMES
    planned = sorted(stage.planned_bytes for stage in report.stages)
    assert planned[0] + planned[1] > report.limit_bytes == LIMIT
    assert report.peak_bytes <= LIMIT
    for stage in report.stages:
        # Memory is taken in whole pages, which plans of such small models notice.
        assert 0 < stage.peak_bytes <= stage.planned_bytes + 4 * PAGE
    first, second, third = report.stages
    assert min(first.overlap_s, second.overlap_s) > 0
    assert third.overlap_s == 0
    assert first.loaded_early_bytes == 0
    assert min(second.loaded_early_bytes, third.loaded_early_bytes) > 0
    assert first.after_bytes == second.before_bytes
    assert third.after_bytes == 0
    assert "decode" in str(report)


def test_the_running_stage_comes_first(checkpoints: dict[str, Path]) -> None:
    """Whose run may call the model again: nothing of it is given back, and others wait."""
    with make(checkpoints, forwards=None) as pipeline, pipeline.run("encode") as model:
        for _ in range(3):
            assert_bit_equal(model(tokens()), expected("encode"))
        assert pipeline._ahead is not None
        # What is free takes the base of the next one and some blocks; the rest waits.
        assert pipeline._ahead._thread.is_alive()
        assert pipeline.report().peak_bytes <= LIMIT


def test_with_room_the_next_stage_loads_at_once(checkpoints: dict[str, Path]) -> None:
    with make(checkpoints, forwards=None, max_ram=2 * LIMIT) as pipeline:
        with pipeline.run("encode") as model:
            ahead = pipeline._ahead
            assert ahead is not None
            wait_until(lambda: not ahead._thread.is_alive())
            assert_bit_equal(model(tokens()), expected("encode"))
        with pipeline.run("denoise") as model:
            assert_bit_equal(model(tokens()), expected("denoise"))
        second = pipeline.report().stages[1]
        assert second.loaded_early_bytes >= 0.9 * second.peak_bytes


def test_stages_may_be_skipped_repeated_and_fail(checkpoints: dict[str, Path]) -> None:
    with make(checkpoints, forwards=1) as pipeline:
        with pipeline.run("decode") as model:
            assert_bit_equal(model(tokens()), expected("decode"))
        with pytest.raises(KeyError), pipeline.run("encode") as model:  # noqa: PT012
            model(tokens())
            raise KeyError
        for _ in range(2):
            with pipeline.run("decode") as model:
                assert_bit_equal(model(tokens()), expected("decode"))
        assert [stage.name for stage in pipeline.report().stages] == [
            "decode", "encode", "decode", "decode"
        ]  # fmt: skip
        assert pipeline.report().peak_bytes <= LIMIT


def test_stages_run_one_at_a_time(checkpoints: dict[str, Path]) -> None:
    with make(checkpoints, forwards=1) as pipeline:
        with (
            pipeline.run("encode"),
            pytest.raises(trash_panda.TrashPandaError, match="encode is running"),
            pipeline.run("denoise"),
        ):
            pass
        with pytest.raises(trash_panda.TrashPandaError, match="there are encode, denoise, decode"):
            pipeline.run("paint").__enter__()


def test_streamed_blocks_stay_in_free_memory_until_the_last_forward(
    checkpoints: dict[str, Path],
) -> None:
    with make(checkpoints, forwards=4) as pipeline:
        pipeline.plan()["encode"].assign("disk", indices=range(LAYERS))
        with pipeline.run("encode") as model:
            ahead, offloaded = pipeline._ahead, stream_of(model)
            assert ahead is not None
            assert offloaded is not None
            assert offloaded.stats()["promoted_block_count"] == LAYERS
            for forward in range(3):
                assert_bit_equal(model(tokens()), expected("encode"))
                stats = offloaded.stats()
                read = stats["pass_read_bytes_disk"] + stats["pass_read_bytes_ram"]
                # What was on its way when it was promoted is read once more.
                assert forward == 1 or (read == 0) == (forward == 2)
            assert_bit_equal(model(tokens()), expected("encode"))
            assert offloaded.stats()["promoted_block_count"] == 0
            wait_until(lambda: ahead.loading_s > 0)
        with pipeline.run("denoise") as model:
            assert_bit_equal(model(tokens()), expected("denoise"))
        first, second = pipeline.report().stages
        assert first.promoted_bytes > 0.5 * first.peak_bytes
        assert second.promoted_bytes == 0
        assert second.loaded_early_bytes > 0
        assert pipeline.report().peak_bytes <= LIMIT


def test_blocks_that_are_used_once_are_not_kept(checkpoints: dict[str, Path]) -> None:
    with make(checkpoints, forwards=1) as pipeline:
        pipeline.plan()["encode"].assign("disk", indices=range(LAYERS))
        with pipeline.run("encode") as model:
            assert_bit_equal(model(tokens()), expected("encode"))
        assert pipeline.report().stages[0].promoted_bytes == 0


def test_close_lets_go_of_what_was_loaded_early(checkpoints: dict[str, Path]) -> None:
    pipeline = make(checkpoints, forwards=1)
    with pipeline.run("encode") as model:
        ahead = pipeline._ahead
        assert ahead is not None
        model(tokens())
        wait_until(lambda: ahead.loading_s > 0)
    assert pipeline.report().stages[0].after_bytes > 0
    pipeline.close()
    with pipeline.run("denoise") as model:
        assert_bit_equal(model(tokens()), expected("denoise"))
    assert pipeline.report().stages[1].before_bytes == 0
    pipeline.close()


def test_a_stage_that_fits_in_no_way_is_an_error(checkpoints: dict[str, Path]) -> None:
    with pytest.raises(trash_panda.DoesNotFitError) as refused:
        make(checkpoints, forwards=1, max_ram=50_000).plan()
    assert refused.value.budget == 50_000
    with pytest.raises(ValueError, match="name of its own"):
        Pipeline([Stage("a", tower, checkpoints["encode"])] * 2)
    with pytest.raises(ValueError, match="forwards is 0"):
        Stage("a", tower, checkpoints["encode"], forwards=0)
    for option in ("max_ram", "device"):
        with pytest.raises(TypeError, match=f"stage a: {option} is the pipeline's"):
            Stage("a", tower, checkpoints["encode"], **{option: None})


def test_a_stage_may_skip_parts(packs: PackFactory) -> None:
    state = build(tower).state_dict()
    del state["head.weight"]
    stage = Stage("encode", tower, packs.checkpoint(state), skip_prefixes="head.")
    with Pipeline([stage]).run("encode") as model:
        hidden = model.layers[0](model.embed(tokens()))
        resident = build(tower).to(torch.bfloat16)
        assert_bit_equal(hidden, resident.layers[0](resident.embed(tokens())))
