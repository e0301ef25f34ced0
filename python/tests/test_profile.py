"""TRASH_PANDA_PROFILE: the summary of a run, on stderr when the run is over."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trash_panda
from conftest import PackFactory
from models import Tower, build, on_meta, tokens

LAYERS = 3


def tower() -> Tower:
    return Tower(LAYERS)


@pytest.fixture(scope="module")
def pack(shared_packs: PackFactory) -> Path:
    checkpoint = shared_packs.checkpoint(build(tower).state_dict())
    return shared_packs.pack(checkpoint, tiers=["ram", "disk", "ram"])


def test_is_shown_once_when_the_model_is_closed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pack: Path
) -> None:
    monkeypatch.setenv("TRASH_PANDA_PROFILE", "1")
    with trash_panda.load(pack, on_meta(tower)) as loaded:
        for _ in range(2):
            loaded.model(tokens())
        assert capsys.readouterr().err == ""
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    passes = [line for line in lines if line.split()[:1] in (["1"], ["2"])]
    assert len(passes) == 2, shown.err
    for layer in range(LAYERS):
        assert any(line.startswith(f"layers.{layer} ") for line in lines), shown.err
    loaded.close()
    assert capsys.readouterr().err == ""


def test_a_log_is_written_beside_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    pack: Path,
) -> None:
    monkeypatch.setattr("trash_panda._assemble._run_numbers", itertools.count(1))
    monkeypatch.setenv("TRASH_PANDA_PROFILE", "yes")
    monkeypatch.setenv("TRASH_PANDA_LOG", str(tmp_path / "run.jsonl"))
    with trash_panda.load(pack, on_meta(tower)) as loaded:
        loaded.model(tokens())
    assert str(tmp_path / "run.jsonl") in capsys.readouterr().err
    assert (tmp_path / "run.jsonl").exists()


def test_a_bad_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, pack: Path) -> None:
    monkeypatch.setenv("TRASH_PANDA_PROFILE", "maybe")
    with pytest.raises(ValueError, match="TRASH_PANDA_PROFILE is 'maybe'"):
        trash_panda.load(pack, on_meta(tower))
    monkeypatch.setenv("TRASH_PANDA_PROFILE", "0")
    trash_panda.load(pack, on_meta(tower)).close()


FORK = "os._exit(0) if os.fork() == 0 else os.wait()"
# In the child, all that was there is finalized; the parent goes on logging.
FORK_ENDS = "if os.fork() == 0: raise SystemExit\nos.wait()\nmodel(tokens())"
FORK_DROPS = "if os.fork() == 0: del model; os._exit(0)\nos.wait()\nmodel(tokens())"


@pytest.mark.parametrize("ending", ["", "del model", FORK, FORK_ENDS, FORK_DROPS])
def test_is_shown_at_the_end_of_a_program_that_closes_nothing(
    tmp_path: Path, pack: Path, ending: str
) -> None:
    program = (
        "import os, trash_panda\n"
        "from models import Tower, on_meta, tokens\n"
        f"model = trash_panda.load({str(pack)!r}, on_meta(lambda: Tower({LAYERS}))).model\n"
        "model(tokens())\n"
        "model(tokens())\n"
        f"{ending}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "TRASH_PANDA_PROFILE": "1", "TMPDIR": str(tmp_path)},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\npass ") == 1, done.stderr
    assert "layers.2 " in done.stderr
    assert list(tmp_path.iterdir()) == []
