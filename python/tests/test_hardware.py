"""Descriptions of machines, recorded and reported, against their schema."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conftest import find_cli

ROOT = Path(__file__).parents[2]
RECORDED = sorted((ROOT / "schemas" / "examples" / "hardware").glob("*.json"))


def closed(schema: Any) -> Any:
    """The schema without leave to add members: a misspelt one is no addition."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return inner | {"additionalProperties": False} if "properties" in inner else inner


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = closed(json.loads((ROOT / "schemas" / "hardware.schema.json").read_text()))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_there_are_recorded_machines() -> None:
    assert len(RECORDED) >= 7


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recorded_machine_keeps_to_the_schema(
    path: Path, validator: jsonschema.Draft202012Validator
) -> None:
    document = json.loads(path.read_text())
    validator.validate(document)
    assert document["note"]


@pytest.mark.parametrize("redaction", ["--redact", "--no-redact"])
def test_a_report_keeps_to_the_schema(
    redaction: str, validator: jsonschema.Draft202012Validator, tmp_path: Path
) -> None:
    command = [find_cli(), "hwreport", "--no-bench", "--json", redaction, "--path", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    validator.validate(json.loads(done.stdout))


def test_the_schema_refuses_what_it_should(validator: jsonschema.Draft202012Validator) -> None:
    document = json.loads(RECORDED[0].read_text())
    document["ram_total_bites"] = 1
    assert not validator.is_valid(document)
    del document["ram_total_bites"], document["ram_total_bytes"]
    assert not validator.is_valid(document)
