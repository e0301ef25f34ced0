"""The calls take what callers were promised: the same names, order, kinds and defaults."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

import trash_panda

# Of the earlier library, whose calls stay valid as they were. offload_blocks() had the default
# compute_dtype=torch.bfloat16, which importing this package can't name without importing torch:
# it takes that of stream_load(), whose default is the same.
EARLIER = """
plan(model, checkpoint, *, compute_dtype="bf16", storage_dtype="auto", resident_blocks=None,
     max_vram=None, headroom_vram=None, activation_vram=None, max_ram=None, min_free_ram=None,
     allow_disk=True, lookahead=None, spread_disk=True, hardware=None, groups=None)
BlockPlan(prefix, tier=Tier.RAM, stored_bytes=0, expanded_bytes=0)
Plan.manual(*, resident=(), streamed=(), disk=(), compute_dtype="bf16", storage_dtype="auto")
Plan.assign(self, tier, *, indices=None, prefixes=None)
Plan.prefixes(self, tier)
Plan.summary(self)
stream_load(model, path, plan=None, *, offload_prefixes=(), resident_prefixes=(),
            disk_prefixes=(), skip_prefixes=(), compute_dtype="bf16", storage_dtype="auto",
            device=None, key_map=None)
install_offload(model, plan=None, *, device=None, compute_dtype=None, lookahead=None, profile=None)
offload_blocks(blocks, *, device=None, compute_dtype=None, disk=None, prefetcher=None,
               lookahead=None, profile=None)
OffloadHandle.remove(self)
OffloadHandle.extend(self, other)
measure_activation_vram(fn, plan=None, device=None)
find_blocks(model, *, min_fraction=None, min_blocks=None)
detect_hardware(device_index=0)
module_nbytes(module)
parse_bytes(value)
parse_dtype(value)
"""
NEW = """
plan(hw=None, profile=None, placement="cost", device=None, key_map=None, skip_prefixes=(),
     context=None)
Plan.save(self, path)
Plan.load(path, checkpoint=None)
Plan.explain(self, index)
Plan.validate(self, checkpoint)
load(pack_dir, model=None, *, plan=None, device=None, compute_dtype=None, strict=True,
     ignore_missing=(), verify="headers", lookahead=None, progress=None)
from_pretrained(model_id_or_dir, *, cls=None, subfolder=None, plan="auto", repack="auto",
                dtype="bf16", device=None, local_files_only=True, key_map=None)
hwreport(path=None, *, bench="quick", redact=True)
release(model, handle)
Offloaded.stats(self)
Offloaded.trace(self, path)
Offloaded.release_gpu(self)
Offloaded.restore_gpu(self)
Offloaded.close(self)
"""


def calls(text: str) -> list[ast.FunctionDef]:
    """The lines as functions; a full stop in a name is "__" there."""
    result = []
    for call in text.strip().replace("\n ", " ").splitlines():
        name, _, rest = call.partition("(")
        function = ast.parse(f"def {name.replace('.', '__')}({rest}: ...").body[0]
        assert isinstance(function, ast.FunctionDef)
        result.append(function)
    return result


def value(node: ast.expr | None) -> Any:
    if node is None:
        return inspect.Parameter.empty
    return eval(ast.unparse(node), {"Tier": trash_panda.Tier})


def promised(function: ast.FunctionDef) -> dict[str, tuple[bool, Any]]:
    """Whether each parameter is keyword-only, and its default."""
    args = function.args
    defaults = [None] * (len(args.args) - len(args.defaults)) + args.defaults
    found = {a.arg: (False, value(d)) for a, d in zip(args.args, defaults, strict=True)}
    keywords = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    return found | {a.arg: (True, value(d)) for a, d in keywords}


def actual(name: str) -> dict[str, tuple[bool, Any]]:
    found: Any = trash_panda
    for part in name.split("__"):
        found = getattr(found, part)
    parameters = inspect.signature(found).parameters
    return {n: (p.kind is p.KEYWORD_ONLY, p.default) for n, p in parameters.items()}


@pytest.mark.parametrize("function", calls(EARLIER), ids=lambda function: function.name)
def test_the_earlier_library_s_calls(function: ast.FunctionDef) -> None:
    wanted, ours = promised(function), actual(function.name)
    assert {name: ours[name] for name in wanted} == wanted
    assert list(ours)[: len(wanted)] == list(wanted)
    more = {name: ours[name] for name in list(ours)[len(wanted) :]}
    assert all(keyword and default is not inspect.Parameter.empty
               for keyword, default in more.values())  # fmt: skip


@pytest.mark.parametrize("function", calls(NEW), ids=lambda function: function.name)
def test_the_new_calls(function: ast.FunctionDef) -> None:
    ours = actual(function.name)
    for name, (keyword, default) in promised(function).items():
        assert ours[name][1] == default, name
        assert ours[name][0] or not keyword, name


def test_a_plan_and_a_report_have_their_fields() -> None:
    plan = trash_panda.Plan.manual(resident=["a"], streamed=["b"], disk=["c"])
    assert (plan.resident, plan.streamed, plan.disk) == (("a.",), ("b.",), ("c.",))
    assert (plan.warnings, plan.predicted) == ([], None)
    assert [tier.value for tier in trash_panda.Tier] == ["gpu", "ram", "disk"]
    assert issubclass(trash_panda.Tier, str)
    assert list(inspect.signature(trash_panda.LoadReport).parameters) == [
        "counts", "nbytes", "kinds", "unexpected", "skipped", "aux_keys", "warnings"
    ]  # fmt: skip


def test_a_stage_takes_a_key_by_position() -> None:
    parameters = list(inspect.signature(trash_panda.stage).parameters)
    assert parameters[:3] == ["build", "checkpoint", "key"]
