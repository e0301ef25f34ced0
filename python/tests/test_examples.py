"""The examples run, as a user would run them."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
TOLD = {
    "chain.py": ["image [1, 3, 16, 16]", "weights took", "denoise: "],
    "generate.py": ["Plan (auto): 4 blocks", "[1, 5, 9,", "weights took"],
    "manual.py": ["it differs: True", "is the same: True", "bytes of weights"],
    "three_steps.py": ["2 on disk", "8 tensors in disk", "before"],
}
NEEDS = {"chain.py": ("transformers", "diffusers"), "generate.py": ("transformers",)}


def test_every_example_is_run() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == TOLD.keys()


@pytest.mark.parametrize("name", TOLD)
def test_an_example_runs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in NEEDS.get(name, ()):
        pytest.importorskip(library)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name)])
    # In this process, which has torch and transformers already.
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    for text in TOLD[name]:
        assert text in printed
