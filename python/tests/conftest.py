"""Fixtures: the command line beside this Python, and packs made on the spot."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from warm_python import WarmPython

TORCH_FREE = {"test_documents.py", "test_import.py", "test_names.py", "test_signatures.py"}

if importlib.util.find_spec("torch"):
    import torch

    # These models are so small that a second thread would only wait for the first.
    torch.set_num_threads(1)
else:
    # Everything else is about models and can't even be imported.
    collect_ignore = [
        path.name for path in Path(__file__).parent.glob("test_*.py") if path.name not in TORCH_FREE
    ]

    def pytest_report_header() -> str:
        return "torch is not installed: only the tests that need none run"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name not in TORCH_FREE:
            item.add_marker("torch")


def find_cli() -> str:
    """The command line of the environment that runs the tests, else the one on PATH."""
    beside = Path(sys.executable).with_name("trash-panda")
    found = str(beside) if beside.exists() else shutil.which("trash-panda")
    if found is None:
        pytest.fail("trash-panda is neither beside this Python nor on PATH: pip install . first")
    return found


def run_cli(*arguments: str | Path) -> str:
    """Runs the command line; a failure fails the test with its message."""
    command = [find_cli(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} gave {done.returncode}: {done.stderr}"
    return done.stdout


def write_tiers(plan: Path, tiers: Sequence[str], target: Path) -> Path:
    """Copies a plan with other tiers, as a person would edit it."""
    text = plan.read_text()
    line = re.compile(r'^tier = "\w+"$', re.MULTILINE)
    assert len(line.findall(text)) == len(tiers), f"{plan} has another number of blocks"
    remaining = iter(tiers)
    target.write_text(line.sub(lambda _: f'tier = "{next(remaining)}"', text))
    return target


class PackFactory:
    """Writes checkpoints and packs them with the command line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0

    def checkpoint(self, state: dict[str, Any], config: dict[str, Any] | None = None) -> Path:
        """A folder with the tensors of `state` as model.safetensors, and config.json."""
        from safetensors.torch import save_file

        self._count += 1
        folder = self.folder / f"checkpoint-{self._count}"
        folder.mkdir()
        save_file(
            {name: tensor.contiguous() for name, tensor in state.items()},
            folder / "model.safetensors",
        )
        if config is not None:
            (folder / "config.json").write_text(json.dumps(config))
        return folder

    def pack(
        self,
        checkpoint: Path,
        *,
        tiers: Sequence[str] | None = None,
        compute_dtype: str = "bf16",
    ) -> Path:
        """Plans and repacks a checkpoint; the tier of each block may be given."""
        self._count += 1
        plan = self.folder / f"plan-{self._count}.toml"
        pack = self.folder / f"model-{self._count}.panda"
        run_cli("plan", checkpoint, "-o", plan, "--compute-dtype", compute_dtype)
        if tiers is not None:
            write_tiers(plan, tiers, plan)
        run_cli("repack", checkpoint, "--plan", plan, "-o", pack)
        return pack


# What may end a forward: the second one skips torch's hooks.
interruptions = pytest.mark.parametrize(
    "error", [ValueError("mine"), KeyboardInterrupt()], ids=repr
)


@contextlib.contextmanager
def interrupted(module: Any, error: BaseException) -> Iterator[None]:
    """The module's calls raise the error, and so must the body of the `with`."""

    def fail(module: object, args: object) -> None:
        raise error

    hook = module.register_forward_pre_hook(fail)
    try:
        with pytest.raises(type(error)):
            yield
    finally:
        hook.remove()


@pytest.fixture
def packs(tmp_path: Path) -> PackFactory:
    return PackFactory(tmp_path)


@pytest.fixture(scope="module")
def shared_packs(tmp_path_factory: pytest.TempPathFactory) -> PackFactory:
    """For packs that several tests of a file read."""
    return PackFactory(tmp_path_factory.mktemp("packs"))


@pytest.fixture(scope="session")
def warm_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmPython]:
    with WarmPython(tmp_path_factory.mktemp("programs")) as warm:
        yield warm


@pytest.fixture
def flip_bit() -> Callable[[Path, int], None]:
    def flip(file: Path, offset: int) -> None:
        with file.open("r+b") as stream:
            stream.seek(offset)
            byte = stream.read(1)[0]
            stream.seek(offset)
            stream.write(bytes([byte ^ 0x10]))

    return flip
