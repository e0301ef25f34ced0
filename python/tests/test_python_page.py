"""docs/python.md names tests that exist, and every public name."""

from __future__ import annotations

import re
from pathlib import Path

import trash_panda

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of a table's rows, by the last cell of its heading."""
    tables = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    (table,) = [each for each in tables if each.splitlines()[0].endswith(heading)]
    return [line.strip("|\n ").split(" | ") for line in table.splitlines()[2:]]


def test_every_test_that_a_table_names_exists() -> None:
    for cells in (*rows("| tests (`python/tests`) |"), *rows("| fault | test |")):
        named = re.findall(r"`((?:test_|tests/)[\w/.]+)`", cells[-1])
        assert named, f"no test for {cells[0]}"
        for name in named:
            file = ROOT / name if name.startswith("tests/") else Path(__file__).with_name(name)
            assert file.exists(), f"{cells[0]}: there is no {name}"


def test_the_words_after_a_test_are_those_of_its_functions() -> None:
    """`test_faults.py`: a bad checkpoint → test_a_bad_checkpoint_is_refused…"""
    for cells in (*rows("| tests (`python/tests`) |"), *rows("| fault | test |")):
        for name, words in re.findall(r"`(test_\w+\.py)`: ([^;`]+)", cells[-1]):
            text = Path(__file__).with_name(name).read_text(encoding="utf-8")
            functions = " ".join(re.findall(r"^def (test_\w+)", text, re.MULTILINE))
            for phrase in words.strip().split(", "):
                assert phrase.replace(" ", "_") in functions, f"{cells[0]}: {name} has no {phrase}"


def test_every_public_call_is_on_the_page() -> None:
    calls = {
        name
        for name in trash_panda.__all__
        if name[0].islower() and callable(getattr(trash_panda, name, None))
    }
    lacking = sorted(name for name in calls if not re.search(rf"\b{name}\b", PAGE))
    assert not lacking, f"docs/python.md does not mention {', '.join(lacking)}"
