"""Makes a folder that tests and measures a machine with a GPU, where nothing can be installed.

`scripts/gpu_suite.py OUT [--build build/release] [--wheel FILE]` here, after `./bootstrap build`;
then copy OUT there and run `OUT/run.sh`. It holds the command line, the tests of the device with
the fake driver, and their libraries but for the C library, whose version is checked: it says which
one is needed. With a wheel of the package for the Python there (`python3.12 -m pip wheel --no-deps
-w build/wheel .` makes one for 3.12 and later), also the package, its tests on torch's GPU,
and the benchmark of passes.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

# Of the system that it will run on, as are the driver's libraries.
_SYSTEM = re.compile(r"^(ld-linux|libc|libm|libdl|librt|libpthread|libresolv)[-.]")
FOLDER_BYTES_MAX = 64 * 1024 * 1024
ROOT = pathlib.Path(__file__).resolve().parents[1]
# Of python/tests: what test_gpu.py needs.
TESTS = ["test_gpu.py", "conftest.py", "fake_gpu.py", "models.py", "exponent_code.py",
         "warm_python.py"]  # fmt: skip

RUN = """#!/bin/sh
# Tests and measures this machine; results/ holds what came out. Exit 1 when a test fails.
# What can't be run is said, with what is missing.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib" TP_FAKE_CUDA="$here/fake/libcuda.so.1"
mkdir -p "$here/results"
status=0
"$here/bin/tests_device" --gtest_brief=1 --gtest_output=json:"$here/results/device.json" || status=1
"$here/bin/tests_device" --gtest_filter='*RealGpu*' || status=1
if [ -d "$here/python" ]; then
  export PYTHONPATH="$here/python:$here/site" PATH="$here/bin:$PATH"
  if python3 -c 'import torch'; then
    python3 -m pytest -q -ra -p no:cacheprovider "$here/tests" || status=1
  else
    echo "nothing was tested from Python: $(python3 --version) has no torch"
  fi
else
  echo "nothing was tested from Python: the folder was made without --wheel"
fi
if [ -d "$here/python" ] && python3 -c 'import torch' 2>/dev/null; then
  python3 "$here/bench/gpu_pass.py" --dir "$here" --json "$here/results/gpu_pass.json" || status=1
else
  echo "passes were not measured: that takes the package (--wheel) and torch"
fi
echo "measuring; the link is in results/hardware.json"
"$here/bin/trash-panda" hwreport --json > "$here/results/hardware.json" || status=1
"$here/bin/trash-panda" hwreport || status=1
exit $status
"""


def libraries(program: pathlib.Path) -> dict[str, pathlib.Path]:
    listed = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True)
    found = {}
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", listed.stdout, re.MULTILINE):
        if not _SYSTEM.match(name):
            found[name] = pathlib.Path(path)
    return found


def add_package(out: pathlib.Path, wheel: pathlib.Path) -> pathlib.Path:
    """The package, its tests of the GPU, and pytest. Returns the package's native module."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out / "python")
    (out / "tests").mkdir()
    tests = ROOT / "python" / "tests"
    for name in TESTS:
        shutil.copyfile(tests / name, out / "tests" / name)
    (out / "bench").mkdir()
    shutil.copyfile(ROOT / "bench" / "gpu_pass.py", out / "bench" / "gpu_pass.py")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile"]
    packages = ["pytest", "safetensors"]
    subprocess.run([*command, "--target", str(out / "site"), *packages], check=True)
    return next((out / "python" / "trash_panda").glob("_native*.so"))


def glibc_needed(files: list[pathlib.Path]) -> tuple[int, ...]:
    needed = (0,)
    for file in files:
        command = ["objdump", "-T", str(file)]
        symbols = subprocess.run(command, capture_output=True, text=True, check=False)
        for version in re.findall(r"GLIBC_([\d.]+)", symbols.stdout):
            needed = max(needed, tuple(int(part) for part in version.split(".")))
    return needed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--wheel", type=pathlib.Path)
    given = parser.parse_args()
    programs = [given.build / "apps/trash-panda/trash-panda",
                given.build / "tests/device/tests_device"]  # fmt: skip
    fake = given.build / "tests/fake_cuda/libcuda.so.1"
    for needed in [*programs, fake]:
        if not needed.is_file():
            sys.exit(f"{needed} is not there: build it first (./bootstrap build)")
    if given.out.exists():
        sys.exit(f"{given.out} is there already")
    files = []
    found: dict[str, pathlib.Path] = {}
    for program in [*programs, fake]:
        found |= libraries(program)
    if given.wheel is not None:
        native = add_package(given.out, given.wheel)
        found |= libraries(native)
        files.append(native)
    targets = ([(program, "bin") for program in programs] + [(fake, "fake")]
               + [(path, "lib") for path in found.values()])  # fmt: skip
    names = {path: name for name, path in found.items()}
    for source, folder in targets:
        target = given.out / folder / names.get(source, source.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.resolve(), target)
        shutil.copymode(source.resolve(), target)
        files.append(target)
    for file in files:
        subprocess.run(["strip", "--strip-unneeded", str(file)], check=False)
    (given.out / "run.sh").write_text(RUN, encoding="utf-8")
    (given.out / "run.sh").chmod(0o755)
    size_bytes = sum(file.stat().st_size for file in given.out.rglob("*") if file.is_file())
    version = ".".join(str(part) for part in glibc_needed(files))
    print(f"{given.out}: {size_bytes / 1e6:.1f} MB, needs glibc {version} or newer")
    if size_bytes > FOLDER_BYTES_MAX:
        sys.exit(f"more than {FOLDER_BYTES_MAX / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
