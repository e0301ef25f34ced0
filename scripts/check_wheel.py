"""Checks a wheel of the package as its users get it: what is in it, and that it works in clean
environments without torch and with given versions of it.

    scripts/check_wheel.py WHEEL [--torch VERSION]…

Each environment is made anew in a temporary folder, with the Python that runs this, and removed.
pip's own settings say where torch comes from. Uses the standard library only.

Exit 0: all is well; 1: it is not, or pip could not install something.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# From 3.12 on the stable ABI has what nanobind needs.
IS_ABI3 = sys.version_info >= (3, 12)

WITHOUT_TORCH = """
import sys
import trash_panda

assert "torch" not in sys.modules
try:
    trash_panda.load("model.panda", object())
except ImportError as error:
    assert f"{sys.executable} -m pip install torch" in str(error), error
else:
    raise SystemExit("load() worked without torch")
print("trash_panda", trash_panda.__version__, "imports without torch")
"""

# A model with weights in float32 and in fp8 with a scale; planned, packed and streamed by what the
# wheel brings, and compared bit for bit with torch's own arithmetic.
WITH_TORCH = """
import pathlib, tempfile
import torch, trash_panda
from safetensors.torch import save_file
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64, bias=False)

    def forward(self, hidden):
        return hidden + self.down(self.up(hidden).relu())

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(6))
        self.head = nn.Linear(64, 10)

    def forward(self, hidden):
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden)

torch.manual_seed(0)
resident = Model().requires_grad_(False)
state = resident.state_dict()
for index in range(6):
    name = f"layers.{index}.up.weight"
    scale = state[name].abs().max() / 448
    state[name] = (state[name] / scale).to(torch.float8_e4m3fn)
    state[name + "_scale"] = scale
    value = (state[name].float() * scale).bfloat16()
    resident.layers[index].up.weight.copy_(value.float())
resident = resident.bfloat16()
hidden = torch.linspace(-1, 1, 3 * 64).reshape(3, 64).bfloat16()
with tempfile.TemporaryDirectory() as folder:
    checkpoint = pathlib.Path(folder, "model.safetensors")
    save_file(state, checkpoint)
    with torch.device("meta"):
        model = Model()
    plan = trash_panda.plan(model, checkpoint).assign(trash_panda.Tier.DISK, indices=[1, 2, 4])
    report = trash_panda.stream_load(model, checkpoint, plan=plan)
    handle = trash_panda.install_offload(model)
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(model(hidden), resident(hidden))
    assert report.counts["disk"] == 9, report.counts
    handle.remove()
print("torch", torch.__version__, "streams what it computes itself, bit for bit")
"""


def run(*command: str | pathlib.Path) -> str:
    """What the command prints. Ends with its message when it fails."""
    done = subprocess.run(list(command), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shown = " ".join(str(part) for part in command[:4])
        sys.exit(f"wheel: {shown} … gave {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def expect(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"wheel: {message}")


def check_contents(wheel: pathlib.Path) -> None:
    """Package, stubs, command line, man pages and licence are in it, and no sources."""
    abi = "cp312-abi3" if IS_ABI3 else f"cp3{sys.version_info.minor}-cp3{sys.version_info.minor}"
    expect(f"-{abi}-" in wheel.name, f"{wheel.name} is not for {abi}")
    module = r"abi3\.so" if IS_ABI3 else r"cpython-.*\.so"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for pattern in (
            r"trash_panda/__init__\.py",
            r"trash_panda/py\.typed",
            r"trash_panda/_native\.pyi",
            rf"trash_panda/_native\.{module}",
            r"[^/]+\.data/scripts/trash-panda",
            r"[^/]+\.data/data/share/man/man1/trash-panda\.1",
            r"[^/]+\.dist-info/licenses/LICENSE",
        ):
            found = [name for name in names if re.fullmatch(pattern, name)]
            expect(len(found) == 1, f"{len(found)} files like {pattern} in {wheel.name}: {names}")
            if pattern.endswith("LICENSE"):
                text = (ROOT / "LICENSE").read_bytes()
                expect(archive.read(found[0]) == text, f"{found[0]} is not LICENSE")
        strays = [name for name in names if name.endswith((".cpp", ".h", ".a", ".cmake", ".pyc"))]
        expect(not strays, f"{wheel.name} has what nobody needs: {strays}")
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(info).decode()
    expect("License-Expression: AGPL-3.0-only" in metadata, "the licence is not in METADATA")
    # The package works with the torch that is there: it must not ask for one.
    required = [
        line
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    expect(not required, f"METADATA requires packages: {required}")
    print(f"wheel: {wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, contents as they should be")


def check_environment(wheel: pathlib.Path, torch: str | None) -> None:
    """Installs the wheel in an environment of its own and runs what its user would."""
    with tempfile.TemporaryDirectory(prefix="trash-panda-wheel-") as folder:
        run(sys.executable, "-m", "venv", folder)
        python = pathlib.Path(folder, "bin", "python")
        packages = [] if torch is None else [f"torch=={torch}", "safetensors", "numpy"]
        run(python, "-m", "pip", "install", "--no-cache-dir", wheel, *packages)
        version = run(python.with_name("trash-panda"), "--version").splitlines()[0]
        expect(f"-{version.split()[1]}-" in wheel.name, f"the command line is {version}")
        program = WITHOUT_TORCH if torch is None else WITH_TORCH
        # -I: nothing of the folder or the caller's environment is imported in its place.
        print(f"wheel: {run(python, '-I', '-c', program)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--torch", action="append", default=[], metavar="VERSION")
    options = parser.parse_args()
    wheel = options.wheel.resolve()
    check_contents(wheel)
    for torch in (None, *options.torch):
        check_environment(wheel, torch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
