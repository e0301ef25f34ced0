"""The package without torch, and what it says then."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

import pytest

import trash_panda

WITHOUT_TORCH = """
import importlib.abc, sys

class NoTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, NoTorch())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find_spec(name, *rest)
"""


def run_without_torch(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH + code], capture_output=True, text=True, check=False
    )


def test_imports_without_torch() -> None:
    done = run_without_torch(
        "import trash_panda; assert 'torch' not in sys.modules; print(trash_panda.__version__)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == trash_panda.__version__


def test_load_names_the_command_that_installs_torch() -> None:
    done = run_without_torch("import trash_panda; trash_panda.load('x.panda', object())")
    assert done.returncode == 1
    assert f"{sys.executable} -m pip install torch" in done.stderr
    assert "ImportError" in done.stderr


def test_import_prints_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import trash_panda"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_version_is_the_project_s() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", trash_panda.__version__)


def test_logger_is_silent_by_default() -> None:
    handlers = logging.getLogger("trash_panda").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)


@pytest.mark.parametrize(
    ("name", "bases"),
    [
        ("CheckpointError", (ValueError,)),
        ("MissingTensorsError", (trash_panda.CheckpointError,)),
        ("UnsupportedFormatError", (NotImplementedError,)),
        ("PlanError", (ValueError,)),
        ("DoesNotFitError", (trash_panda.PlanError,)),
        ("StalePlanError", (trash_panda.PlanError,)),
        ("IntegrityError", ()),
        ("ReleasedError", ()),
    ],
)
def test_exceptions_are_what_a_caller_expects(name: str, bases: tuple[type, ...]) -> None:
    error = getattr(trash_panda, name)
    assert issubclass(error, (trash_panda.TrashPandaError, RuntimeError))
    assert all(issubclass(error, base) for base in bases)


def test_missing_pack_is_a_checkpoint_error(tmp_path) -> None:
    from trash_panda._pack import Pack

    with pytest.raises(trash_panda.CheckpointError, match=re.escape(str(tmp_path))) as caught:
        Pack.open(tmp_path / "absent.panda")
    assert caught.value.code == "missing"
