"""The model stays itself, and usable, whatever happens in its forward."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import trash_panda
from conftest import PackFactory, interrupted, interruptions
from models import Tower, assert_bit_equal, build, on_meta, tokens
from warm_python import WarmPython

LAYERS = 6


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture(scope="module")
def pack(shared_packs: PackFactory) -> Path:
    checkpoint = shared_packs.checkpoint(build(tower).state_dict())
    return shared_packs.pack(checkpoint, tiers=["disk", "ram"] * (LAYERS // 2))


@pytest.fixture(scope="module")
def expected() -> Tensor:
    return build(tower).to(torch.bfloat16)(tokens())


@interruptions
def test_an_exception_in_forward_leaves_the_model_usable(
    pack: Path, expected: Tensor, error: BaseException
) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model, lookahead=1):
        for layer in (model.layers[2].down, model.layers[3], model.head):
            with interrupted(layer, error):
                model(tokens())
        assert_bit_equal(model(tokens()), expected)
        assert all(parameter.is_meta for parameter in model.layers.parameters())


def test_weights_are_put_back_at_once_on_an_exception(pack: Path) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        with pytest.raises(RuntimeError):
            model.layers[0](torch.zeros(1, 7, dtype=torch.bfloat16))
        assert all(parameter.is_meta for parameter in model.layers.parameters())


def test_a_second_thread_is_refused_and_the_first_goes_on(pack: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    inside, go_on = threading.Event(), threading.Event()
    errors: list[Exception] = []

    def wait(module: nn.Module, args: object) -> None:
        inside.set()
        assert go_on.wait(30)

    def second() -> None:
        for call in (lambda: model(tokens()), lambda: model.layers[4](torch.zeros(1, 64))):
            try:
                call()
            except trash_panda.TrashPandaError as error:
                errors.append(error)
        go_on.set()

    results: list[Tensor] = []
    with trash_panda.load(pack, model) as offloaded:
        hook = model.layers[3].register_forward_pre_hook(wait)
        first = threading.Thread(target=lambda: results.append(model(tokens())), name="first")
        first.start()
        assert inside.wait(30)
        with pytest.raises(trash_panda.TrashPandaError, match="first"):
            offloaded.close()
        second()
        first.join(30)
        hook.remove()
        assert len(errors) == 2
        assert all("thread first" in str(error) for error in errors)
        assert_bit_equal(results[0], expected)
        assert_bit_equal(model(tokens()), expected)


def test_threads_may_take_turns(pack: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    results: list[Tensor] = []
    with trash_panda.load(pack, model):
        for _ in range(3):
            thread = threading.Thread(target=lambda: results.append(model(tokens())))
            thread.start()
            thread.join(30)
    for result in results:
        assert_bit_equal(result, expected)
    assert len(results) == 3


def test_a_closed_model_says_so_and_can_be_loaded_again(pack: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    offloaded = trash_panda.load(pack, model)
    model(tokens())
    offloaded.close()
    offloaded.close()
    assert offloaded.stats()["pass_count"] == 1
    assert model.embed.weight.is_meta
    for call in (lambda: model(tokens()), lambda: model.layers[0](torch.zeros(1, 64))):
        with pytest.raises(trash_panda.ReleasedError, match="load it again"):
            call()
    with trash_panda.load(pack, model):
        assert_bit_equal(model(tokens()), expected)


def test_a_model_streams_from_one_pack_at_a_time(pack: Path, expected: Tensor) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        with pytest.raises(trash_panda.TrashPandaError, match=r"close\(\)"):
            trash_panda.load(pack, model)
        assert_bit_equal(model(tokens()), expected)


def test_the_model_is_not_wrapped(pack: Path) -> None:
    model = on_meta(tower)
    layers = list(model.layers)
    with trash_panda.load(pack, model) as offloaded:
        assert offloaded.model is model
        assert type(model) is Tower
        assert list(model.layers) == layers
        assert not model.training
        assert not any(parameter.requires_grad for parameter in model.parameters())


def test_the_model_keeps_streaming_without_its_handle(pack: Path, expected: Tensor) -> None:
    model = trash_panda.load(pack, on_meta(tower)).model
    gc.collect()
    assert_bit_equal(model(tokens()), expected)


def test_dropping_the_model_frees_its_stream(pack: Path) -> None:
    offloaded = trash_panda.load(pack, on_meta(tower))
    offloaded.model(tokens())
    streamer = weakref.ref(offloaded._stream._streamer)
    del offloaded
    gc.collect()
    assert streamer() is None


def test_weights_kept_by_the_caller_stay_readable(pack: Path) -> None:
    offloaded = trash_panda.load(pack, on_meta(tower))
    weight = offloaded.model.embed.weight
    before = weight.clone()
    offloaded.close()
    del offloaded
    gc.collect()
    assert_bit_equal(weight, before)


def test_copies_are_refused_with_advice(pack: Path) -> None:
    model = on_meta(tower)
    with trash_panda.load(pack, model):
        for copier in (copy.deepcopy, pickle.dumps):
            with pytest.raises(trash_panda.TrashPandaError, match=r"load the pack again$"):
                copier(model)
    for copier in (copy.deepcopy, pickle.dumps):  # Nor is there advice that does not help.
        with pytest.raises(trash_panda.TrashPandaError, match=r"load the pack again$"):
            copier(model)


def test_state_dict_refuses_empty_weights(pack: Path) -> None:
    model = on_meta(tower)
    with (
        trash_panda.load(pack, model),
        pytest.raises(trash_panda.TrashPandaError, match=r"layers\.0"),
    ):
        model.state_dict()


@pytest.mark.parametrize("first", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_works_in_every_grad_mode(pack: Path, expected: Tensor, first: type) -> None:
    model = on_meta(tower)
    with first():
        offloaded = trash_panda.load(pack, model)
        assert_bit_equal(model(tokens()), expected)
    with torch.no_grad():
        assert_bit_equal(model(tokens()), expected)
    with torch.inference_mode():
        assert_bit_equal(model(tokens()), expected)
    assert_bit_equal(model(tokens()), expected)
    offloaded.close()


FORK = """
import gc, os, sys, torch, trash_panda
sys.path.insert(0, sys.argv[2])
from models import Tower, on_meta, tokens
model = on_meta(lambda: Tower(6))
offloaded = trash_panda.load(sys.argv[1], model)
model(tokens())
child = os.fork()
if child == 0:
    {child}
_, status = os.waitpid(child, 0)
model(tokens())
offloaded.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
REFUSED_IN_CHILD = """
    for call in (lambda: model(tokens()), lambda: offloaded.stats()):
        try:
            call()
        except trash_panda.TrashPandaError as error:
            if "spawn" not in str(error):
                sys.exit(1)
        else:
            sys.exit(2)
    sys.exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "child",
    [
        REFUSED_IN_CHILD,
        "sys.exit(0)",
        "offloaded.close(); offloaded.close(); sys.exit(0)",
        "del model, offloaded; gc.collect(); sys.exit(0)",
    ],
    ids=["use", "exit", "close", "collect"],
)
def test_a_forked_child_is_refused_and_ends(
    pack: Path, warm_python: WarmPython, child: str
) -> None:
    code = FORK.replace("{child}", child.strip())
    done = warm_python.run(code, pack, Path(__file__).parent)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_inside_a_block_ends_in_the_child(pack: Path, warm_python: WarmPython) -> None:
    code = """
import os, sys, torch, trash_panda
sys.path.insert(0, sys.argv[2])
from models import Tower, on_meta, tokens
model = on_meta(lambda: Tower(6))
offloaded = trash_panda.load(sys.argv[1], model)
children = []

def fork(module, args):
    children.append(os.fork())
    if children[-1] == 0:
        raise KeyError("child")

model.layers[3].up.register_forward_pre_hook(fork)
try:
    model(tokens())
except KeyError:
    offloaded.close()
    sys.exit(0)
_, status = os.waitpid(children[0], 0)
offloaded.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    done = warm_python.run(code, pack, Path(__file__).parent)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_exits_cleanly_with_a_model_in_use(
    pack: Path, warm_python: WarmPython
) -> None:
    code = """
import sys, torch, trash_panda
sys.path.insert(0, sys.argv[2])
from models import Tower, on_meta, tokens
offloaded = trash_panda.load(sys.argv[1], on_meta(lambda: Tower(6)))
offloaded.model(tokens())
offloaded.model.myself = [offloaded]
print("done")
"""
    done = warm_python.run(code, pack, Path(__file__).parent)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


class InParts(nn.Module):
    """Calls the parts of its blocks, which have no forward of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict({"up": nn.Linear(64, 96), "down": nn.Linear(96, 64)})
            for _ in range(LAYERS)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = hidden + layer["down"](layer["up"](hidden).relu())
        return hidden


def test_a_block_called_in_parts_is_read_once_a_pass(packs: PackFactory) -> None:
    resident = build(InParts)
    pack = packs.pack(packs.checkpoint(resident.state_dict()), tiers=["disk"] * LAYERS)
    model = on_meta(InParts)
    hidden = torch.linspace(-1, 1, 64).to(torch.bfloat16)
    expected = resident.to(torch.bfloat16)(hidden)
    with trash_panda.load(pack, model, lookahead=1) as offloaded:
        for _ in range(3):
            assert_bit_equal(model(hidden), expected)
        stats = offloaded.stats()
        stored = sum(shard.stat().st_size for shard in pack.glob("disk-*.safetensors"))
        assert 0 < stats["pass_read_bytes_disk"] <= stored
        assert all(parameter.is_meta for parameter in model.parameters())


class CallingOn(nn.Linear):
    """Calls another module in its forward, which may be a part of another block."""

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = super().forward(hidden)
        return hidden if self.then is None else self.then[0](hidden)

    then: list[nn.Module] | None = None


class PartsInParts(nn.Module):
    """A part of each block calls a part of another one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict({"up": CallingOn(64, 64), "down": nn.Linear(64, 64)})
            for _ in range(LAYERS)
        )
        for index, layer in enumerate(self.layers):
            layer["up"].then = [self.layers[(index + 3) % LAYERS]["down"]]

    def forward(self, hidden: Tensor) -> Tensor:
        for layer in self.layers:
            hidden = layer["up"](hidden)
        return hidden


def test_parts_that_call_parts_of_other_blocks_keep_no_slot(packs: PackFactory) -> None:
    resident = build(PartsInParts)
    pack = packs.pack(packs.checkpoint(resident.state_dict()), tiers=["disk"] * LAYERS)
    model = on_meta(PartsInParts)
    hidden = torch.linspace(-1, 1, 64).to(torch.bfloat16)
    expected = resident.to(torch.bfloat16)(hidden)
    with trash_panda.load(pack, model):
        for _ in range(3):
            assert_bit_equal(model(hidden), expected)
        assert all(parameter.is_meta for parameter in model.parameters())


def test_repr_says_what_it_is(pack: Path) -> None:
    offloaded = trash_panda.load(pack, on_meta(tower))
    assert repr(offloaded) == f"<Offloaded Tower on cpu, {LAYERS} streamed blocks>"
    offloaded.close()
    assert repr(offloaded) == "<Offloaded Tower on cpu, closed>"
