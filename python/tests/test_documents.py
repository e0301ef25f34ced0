"""What the command line says with --json, against the schemas that programs rely on."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from safetensors.numpy import save_file

import trash_panda
from conftest import PackFactory, find_cli

ROOT = Path(__file__).parents[2]
MACHINE = ROOT / "schemas" / "examples" / "hardware" / "rtx3060-16gb-sata.json"
CASES = ROOT.parent / "shared" / "cases"


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def run_json(*arguments: str | Path) -> tuple[int, Any]:
    """The exit code with the document: that on stdout, or of a failure the one on stderr."""
    command = [find_cli(), "--json", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout if done.returncode == 0 else done.stderr.splitlines()[-1]
    return done.returncode, json.loads(text)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    half = np.ones((8, 8), dtype=np.float16)
    tensors = {f"layers.{block}.up.weight": half for block in range(3)} | {"head.weight": half}
    path = tmp_path / "model.safetensors"
    save_file(tensors, path)
    return path


@pytest.fixture
def pipeline(tmp_path: Path, model: Path) -> Path:
    root = tmp_path / "pipeline"
    for name in ("unet", "scheduler", "broken"):
        (root / name).mkdir(parents=True)
    (root / "unet" / "diffusion_pytorch_model.safetensors").symlink_to(model)
    (root / "broken" / "model.safetensors").write_bytes(b"short")
    index = {name: ["diffusers", "Class"] for name in ("unet", "scheduler", "broken", "absent")}
    (root / "model_index.json").write_text(json.dumps({"_class_name": "Pipe", **index}))
    return root


def test_each_command_keeps_to_its_schema(model: Path, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    plan = tmp_path / "plan.toml"
    run_json("plan", model, "-o", plan)
    for name, arguments in (
        ("inspect", ("inspect", model, "--tensors")),
        ("plan", ("plan", model)),
        ("repack", ("repack", model, "-o", pack, "--dry-run")),
        ("repack", ("repack", model, "-o", pack)),
        ("retier", ("repack", pack, "--plan", plan)),
        ("inspect", ("inspect", pack, "--tensors")),
        ("verify", ("verify", pack)),
        ("verify", ("verify", pack, "--source", model)),
        ("unpack", ("unpack", pack, "-o", tmp_path / "unpacked")),
        ("plan", ("plan", model, "--hw", MACHINE, "--why", "-o", first)),
        ("plan", ("plan", model, "--hw", MACHINE, "--max-vram", "0", "-o", second)),
        ("explain", ("explain", first)),
        ("explain", ("explain", second, "0-1")),
        ("diff", ("diff", first, first)),
        ("bench", ("bench", "--what", "h2d,expand", "--runs", "1")),
        ("bench", ("bench", pack, "--what", "stream,ram", "--runs", "2")),
        ("version", ("version",)),
    ):
        exit_code, document = run_json(*arguments)
        assert exit_code == 0, document
        validator(name).validate(document)
    validator("manifest").validate(json.loads((pack / "manifest.json").read_text()))
    done = subprocess.run(
        [find_cli(), "--json", "diff", first, second], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    document = json.loads(done.stdout)
    validator("diff").validate(document)
    assert not document["same"]


def test_the_schema_of_run_logs_is_what_is_read(tmp_path: Path) -> None:
    good = {"type": "block", "pass": 2, "name": "layers.0", "compute_s": 0.5}
    records = [
        (good, True),
        (good | {"later": [1]}, True),
        ({"type": "of a later version", "what": 1}, True),
        ({"pass": 2}, False),
        (good | {"pass": 0}, False),
        (good | {"pass": 1.5}, False),
        (good | {"name": 3}, False),
        (good | {"compute_s": -1}, False),
        (good | {"compute_s": 86401}, False),
        ({key: value for key, value in good.items() if key != "compute_s"}, False),
    ]
    log = tmp_path / "run.jsonl"
    for record, is_good in records:
        assert validator("run_log").is_valid(record) == is_good, record
        log.write_text(json.dumps(record) + "\n")
        exit_code, document = run_json("diff", log, log)
        # What has no type is taken for a machine's description, and refused as such.
        assert (exit_code == 0) == is_good, (record, document)


def test_a_plan_file_keeps_to_its_schema(model: Path, tmp_path: Path) -> None:
    tomllib = pytest.importorskip("tomllib")  # Of Python 3.11.
    config = {"num_hidden_layers": 3, "num_attention_heads": 1, "hidden_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = (
        ("--max-vram", "5MB", "--headroom-vram", "1GB", "--max-ram", "9MB", "--no-disk"),
        ("--activation-vram", "1GB", "--min-free-ram", "1GB", "--max-pinned", "8MB"),
        ("--resident-blocks", "1", "--assign", "ram=-1", "--lookahead", "1", "--compute-ms", "3"),
        ("--placement", "greedy", "--group", "layers", "--context", "9", "--kv-dtype", "fp8"),
    )
    for more in options:
        path = tmp_path / "plan.toml"
        exit_code, document = run_json("plan", model, "--hw", MACHINE, "-f", "-o", path, *more)
        assert exit_code == 0, document
        plan = tomllib.loads(path.read_text())
        assert "request" in plan
        validator("plan-file").validate(plan)


def test_report_keeps_to_its_schema(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [
        {"type": "run", "schema": "trash-panda/run-log/1", "pack": "a.panda", "io": "pread x4"},
        {
            "type": "pass",
            "pass": 1,
            "begin_s": 0,
            "end_s": 1.5,
            "read_bytes_ram": 0,
            "read_bytes_disk": 9,
        },
    ]
    log = tmp_path / "run.jsonl"
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    for record in records:
        validator("run_log").validate(record)
    exit_code, document = run_json("report", log)
    assert exit_code == 0, document
    validator("report").validate(document)


@pytest.mark.torch
def test_a_real_run_keeps_to_the_schemas(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, packs: PackFactory
) -> None:
    from models import Tower, build, on_meta, tokens

    pack = packs.pack(packs.checkpoint(build(lambda: Tower(2)).state_dict()), tiers=["ram", "disk"])
    log = tmp_path / "run.jsonl"
    monkeypatch.setattr("trash_panda._assemble._run_numbers", itertools.count(1))
    monkeypatch.setenv("TRASH_PANDA_LOG", str(log))
    with trash_panda.load(pack, on_meta(lambda: Tower(2))) as loaded:
        for _ in range(3):
            loaded.model(tokens())
    records = [json.loads(line) for line in log.read_text().splitlines()]
    for record in records:
        validator("run_log").validate(record)
    # A member that the schema does not know would be a mistake in one of them.
    members = {
        entry["if"]["properties"]["type"]["const"]: set(entry["then"]["properties"]) | {"type"}
        for entry in json.loads((ROOT / "schemas" / "run_log.schema.json").read_text())["allOf"]
    }
    for record in records:
        assert set(record) <= members[record["type"]], record
    assert {r["kind"] for r in records if r["type"] == "span"} >= {"read", "wait", "compute"}
    exit_code, document = run_json("report", log)
    assert exit_code == 0, document
    validator("report").validate(document)
    assert [block["tier"] for block in document["blocks"]] == ["ram", "disk"]


def test_a_pipeline_keeps_to_the_schema_of_inspect(pipeline: Path) -> None:
    exit_code, document = run_json("inspect", pipeline)
    assert exit_code == 0, document
    validator("inspect").validate(document)
    assert [component["name"] for component in document["components"]] == [
        "unet",
        "scheduler",
        "broken",
        "absent",
    ]


def test_the_plans_of_a_pipeline_keep_to_theirs(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "stages.toml"
    file.write_text("".join(f'[[stage]]\nname = "{name}"\nmodel = "{model}"\n' for name in "ab"))
    for more in ((), ("--hw", ROOT / "schemas/examples/hardware/rtx4090-nvme4.json")):
        exit_code, document = run_json("plan", "--stages", file, *more)
        assert exit_code == 0, document
        validator("stages").validate(document)
        assert [stage["name"] for stage in document["stages"]] == ["a", "b"]


def test_failures_keep_to_theirs(tmp_path: Path) -> None:
    for arguments in (("inspect", tmp_path / "absent"), ("plan",), ("verify", tmp_path)):
        exit_code, document = run_json(*arguments)
        assert exit_code != 0
        validator("error").validate(document)


@pytest.mark.skipif(not CASES.exists(), reason="no folder of shared cases")
def test_every_shared_case_keeps_to_them() -> None:
    documents, errors = validator("inspect"), validator("error")
    for case in json.loads((CASES / "manifest.json").read_text()):
        exit_code, document = run_json("inspect", CASES / case["entry"], "--tensors")
        found = (documents if exit_code == 0 else errors).iter_errors(document)
        assert not list(found), case["id"]
