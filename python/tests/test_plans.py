"""plan(), Plan and what they are made from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import trash_panda
from conftest import PackFactory, run_cli
from models import Tower, build, on_meta
from trash_panda import BlockPlan, Hardware, Plan, Tier, plan
from trash_panda._native import parse_plan

LAYERS = 8
GPU = Hardware(
    vram_total=12 * 10**9,
    vram_free=11 * 10**9,
    ram_total=32 * 10**9,
    ram_available=30 * 10**9,
    gpu_name="a GPU",
)


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture(scope="module")
def checkpoint(shared_packs: PackFactory) -> Path:
    return shared_packs.checkpoint(build(tower).state_dict())


def layer(index: int) -> str:
    return f"layers.{index}."


def test_plans_as_the_command_line_does(checkpoint: Path, tmp_path: Path) -> None:
    made = plan(on_meta(tower), checkpoint)
    run_cli("plan", checkpoint, "-o", tmp_path / "plan.toml")
    assert Plan.load(tmp_path / "plan.toml").to_toml() == made.to_toml()
    assert made.source == "auto"
    assert made.warnings == []
    assert [block.prefix for block in made.blocks] == [layer(i) for i in range(LAYERS)]
    weights = sum(t.numel() for t in build(tower).layers[0].parameters())
    assert {block.stored_bytes for block in made.blocks} == {4 * weights}
    assert {block.expanded_bytes for block in made.blocks} == {2 * weights}
    assert made.compute_dtype == torch.bfloat16


def test_budgets_and_places_are_heeded(checkpoint: Path) -> None:
    model = on_meta(tower)
    assert len(plan(model, checkpoint).streamed) == LAYERS
    assert len(plan(model, checkpoint, hardware=GPU).resident) == LAYERS
    chosen = plan(model, checkpoint, hardware=GPU, resident_blocks=3)
    assert (len(chosen.resident), len(chosen.streamed)) == (3, LAYERS - 3)
    tight = plan(model, checkpoint, max_ram="300kB", lookahead=1, compute_dtype="fp32")
    assert len(tight.disk) > 0
    assert tight.compute_dtype == torch.float32
    with pytest.raises(trash_panda.DoesNotFitError, match="budget is 300 kB") as refused:
        plan(model, checkpoint, max_ram=300_000, allow_disk=False)
    assert refused.value.budget == 300_000
    assert refused.value.needed is not None
    assert refused.value.needed > 300_000


def test_disk_blocks_may_be_the_last_ones(checkpoint: Path) -> None:
    options = {"max_ram": "520kB", "lookahead": 1, "min_free_ram": 0}
    spread = plan(None, checkpoint, **options)
    last = plan(None, checkpoint, **options, spread_disk=False)
    count = len(spread.disk)
    assert 0 < count < LAYERS
    assert last.disk == tuple(layer(i) for i in range(LAYERS - count, LAYERS))


def test_a_model_of_many_blocks(packs: PackFactory) -> None:
    state = {f"layers.{i}.w": torch.zeros(8, 8) for i in range(1000)}
    assert len(plan(None, packs.checkpoint(state)).blocks) == 1000


def test_groups_replace_the_search(packs: PackFactory) -> None:
    state = {f"{part}.{i}.w": torch.zeros(64, 64) for part in ("a", "b") for i in range(3)}
    checkpoint = packs.checkpoint(state)
    assert {b.prefix[0] for b in plan(None, checkpoint).blocks} == {"a", "b"}
    group = trash_panda.BlockGroup("b", ["b.0.", "b.1.", "b.2."], 0)
    for groups in (["b"], [group], "b", group):
        assert [b.prefix for b in plan(None, checkpoint, groups=groups).blocks] == group.prefixes


def test_what_the_model_lacks_is_warned_of(checkpoint: Path) -> None:
    model = on_meta(tower)
    model.extra = nn.Linear(4, 4, device="meta")
    (warning,) = plan(model, checkpoint).warnings
    assert "lacks 2 tensors of Tower: extra.weight, extra.bias" in warning
    for skipped in (["extra."], "extra."):
        assert plan(model, checkpoint, skip_prefixes=skipped).warnings == []
    assert plan(model, checkpoint, skip_prefixes="e.").warnings == [warning]


def test_a_context_takes_memory(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "llama")
    plans = [plan(None, tmp_path / "llama", context=tokens) for tokens in (None, 1000)]
    used = [parse_plan(each.to_toml(), "plan")["ram_used_bytes"] for each in plans]
    # Keys and values of every layer, in bf16.
    assert used[1] - used[0] == 4 * 2 * 64 * 1000 * 2


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"storage_dtype": "int4"}, ValueError, "int4"),
        ({"compute_dtype": "int4"}, ValueError, "compute_dtype is 'int4'"),
        ({"activation_vram": "much"}, ValueError, "much"),
        ({"max_ram": "much"}, ValueError, "much"),
        ({"placement": "best"}, trash_panda.TrashPandaError, "best"),
        ({"profile": "absent.jsonl"}, trash_panda.TrashPandaError, "absent"),
        ({"groups": ["none"]}, trash_panda.TrashPandaError, "none"),
    ],
)
def test_wrong_settings_are_told(
    checkpoint: Path, options: dict[str, object], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        plan(None, checkpoint, **options)


def test_a_bad_variable_of_the_environment_is_named(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRASH_PANDA_MIN_FREE_RAM", "some")
    with pytest.raises(trash_panda.TrashPandaError, match="TRASH_PANDA_MIN_FREE_RAM"):
        plan(None, checkpoint)


def test_another_machine_is_planned_for(checkpoint: Path, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text(GPU.to_json())
    assert len(plan(None, checkpoint, hw=file).resident) == LAYERS


def test_a_plan_by_hand() -> None:
    by_hand = Plan.manual(resident=["b.0", "b.1."], streamed=["b.2."], disk=["b.3."])
    assert by_hand.resident == ("b.0.", "b.1.")
    assert by_hand.streamed == ("b.2.",)
    assert by_hand.prefixes(Tier.DISK) == by_hand.prefixes("disk") == by_hand.disk == ("b.3.",)
    assert by_hand.blocks[2] == BlockPlan("b.2.", Tier.RAM, 0, 0)
    assert (by_hand.source, by_hand.predicted) == ("manual", None)
    assert str(by_hand) == by_hand.summary()
    assert "size not known" in str(by_hand)
    with pytest.raises(trash_panda.PlanError, match="by hand"):
        by_hand.to_toml()
    with pytest.raises(ValueError, match="int4"):
        Plan.manual(resident=["b.0"], compute_dtype="int4")
    with pytest.raises(trash_panda.PlanError, match=r"b\.0\. is given twice"):
        Plan.manual(resident=["b.0"], disk=["b.0."])


def test_assigning_moves_blocks(checkpoint: Path, tmp_path: Path) -> None:
    made = plan(None, checkpoint)
    assert made.assign(Tier.DISK, indices=[0, -1], prefixes=["layers.3"]) is made
    assert made.disk == (layer(0), layer(3), layer(LAYERS - 1))
    assert f"3 on disk: {3 * 66.6:.3g} kB" in made.summary()
    made.save(tmp_path / "plan.toml")
    again = Plan.load(tmp_path / "plan.toml", checkpoint)
    assert again.blocks == made.blocks
    run_cli("repack", checkpoint, "--plan", tmp_path / "plan.toml", "-o", tmp_path / "x.panda")


@pytest.mark.parametrize(
    "wrong", [{"indices": [LAYERS]}, {"indices": [-LAYERS - 1]}, {"prefixes": ["layers.77"]}]
)
def test_assigning_an_unknown_block_moves_none(checkpoint: Path, wrong: dict[str, object]) -> None:
    made = plan(None, checkpoint)
    with pytest.raises(trash_panda.PlanError, match="no block"):
        made.assign(Tier.DISK, **{"indices": [0], **wrong})
    assert made.disk == ()


def test_tiers_may_be_edited_as_text_and_blocks_not_at_all(checkpoint: Path) -> None:
    made = plan(None, checkpoint)
    made.blocks[1].tier = "disk"  # type: ignore[assignment]
    assert Plan.from_toml(made.to_toml()).disk == made.disk == (layer(1),)
    assert made.assign(Tier.RAM, indices=1).disk == ()
    assert made.assign("disk", prefixes="layers.0", indices=0).disk == (layer(0),)
    for change in (made.blocks.reverse, made.blocks.pop):
        change()
        with pytest.raises(trash_panda.PlanError, match="another order"):
            made.to_toml()


def test_a_plan_keeps_its_comments(checkpoint: Path, tmp_path: Path) -> None:
    made = plan(None, checkpoint)
    text = "# mine\n" + made.to_toml()
    assert Plan.from_toml(text).to_toml() == text
    moved = Plan.from_toml(text).assign(Tier.DISK, indices=[0]).to_toml()
    assert "# mine" in moved
    assert Plan.from_toml(moved).disk == (layer(0),)


def test_a_plan_for_another_checkpoint_is_stale(checkpoint: Path, packs: PackFactory) -> None:
    other = packs.checkpoint(build(tower, seed=1).state_dict())
    fewer = packs.checkpoint(build(lambda: Tower(3)).state_dict())
    made = plan(None, checkpoint)
    made.validate(checkpoint)
    assert other != checkpoint
    with pytest.raises(trash_panda.StalePlanError):
        made.validate(fewer)


def test_explains_a_block_and_predicts_a_pass(checkpoint: Path) -> None:
    machine = Hardware(
        ram_total=GPU.ram_total,
        ram_available=GPU.ram_available,
        document={"disks": [{"path": "/", "read_bytes_per_s": 10**6}]},
    )
    made = plan(None, checkpoint, hardware=machine)
    made.assign(Tier.DISK, indices=range(LAYERS))
    told = made.explain(2)
    assert told == made.explain(2 - LAYERS)
    assert told.startswith("layers.2. waits on disk (changed by hand): 66.6 kB stored, 33.3 kB")
    assert "66.6 ms to read" in told
    assert "the pass waits" in told
    assert "in RAM a pass would take" in told
    with pytest.raises(trash_panda.PlanError, match="no block 8"):
        made.explain(LAYERS)
    predicted = made.predicted
    assert predicted is not None
    assert predicted.limiting == "disk"
    assert predicted.pass_s >= predicted.bound_s == pytest.approx(LAYERS * 0.0666, rel=0.01)
    assert "limited by disk" in made.summary()


@pytest.mark.parametrize("text", ["", "nonsense", "version = 1"])
def test_a_file_that_is_no_plan_is_told(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(text)
    with pytest.raises(trash_panda.PlanError, match=r"plan\.toml"):
        Plan.load(file)
    with pytest.raises(trash_panda.PlanError, match=r"absent\.toml"):
        Plan.load(tmp_path / "absent.toml")


def test_this_machine_is_described() -> None:
    found = trash_panda.detect_hardware()
    assert found.ram_total >= found.ram_available > 0
    assert str(found) == found.summary()
    again = json.loads(found.to_json())
    assert again["ram_total_bytes"] == found.ram_total
    if found.gpu_name is None:
        assert "no GPU" in str(found)
        assert found.vram_total == found.vram_free == 0
    else:
        with pytest.raises(trash_panda.PlanError, match="no GPU 99"):
            trash_panda.detect_hardware(99)


def test_a_report_without_measuring(tmp_path: Path) -> None:
    report = trash_panda.hwreport(tmp_path, bench="none")
    assert report["schema"] == "trash-panda/hardware/1"
    with pytest.raises(ValueError, match="bench is 'slow'"):
        trash_panda.hwreport(bench="slow")


def test_finds_the_blocks_of_a_model() -> None:
    model = on_meta(tower)
    (group,) = trash_panda.find_blocks(model)
    assert (group.name, group.prefixes) == ("layers", [layer(i) for i in range(LAYERS)])
    assert group.nbytes == trash_panda.module_nbytes(model.layers)
    assert trash_panda.find_blocks(model, min_fraction=0.99) == []
    assert trash_panda.find_blocks(model, min_blocks=LAYERS + 1) == []


def test_finds_the_blocks_of_a_streaming_model(packs: PackFactory) -> None:
    found = trash_panda.find_blocks(on_meta(tower).to(torch.bfloat16))
    pack = packs.pack(packs.checkpoint(build(tower).state_dict()))
    with trash_panda.load(pack, on_meta(tower)) as offloaded:
        assert trash_panda.find_blocks(offloaded.model) == found


def test_bytes_of_a_module_count_ties_once() -> None:
    tied, untied = on_meta(lambda: Tower(2, tied=True)), on_meta(lambda: Tower(2))
    difference = trash_panda.module_nbytes(untied) - trash_panda.module_nbytes(tied)
    assert difference == untied.head.weight.numel() * 4


@pytest.mark.parametrize(
    ("text", "size"),
    [(None, None), (7, 7), (1.5e9, 1_500_000_000), ("9GB", 9 * 10**9), ("2 GiB", 2**31), ("0", 0)],
)
def test_reads_sizes(text: object, size: int | None) -> None:
    assert trash_panda.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["much", "-1", -1, "1XB", float("nan"), float("inf"), 2.0**64])
def test_refuses_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match=str(text)[:4]):
        trash_panda.parse_bytes(text)


def test_reads_dtypes() -> None:
    names = {"bf16": torch.bfloat16, " FP8 ": torch.float8_e4m3fn, "auto": None, None: None}
    for name, dtype in names.items():
        assert trash_panda.parse_dtype(name) == dtype
    assert trash_panda.parse_dtype(torch.float16) == torch.float16
    with pytest.raises(ValueError, match="int4"):
        trash_panda.parse_dtype("int4")
