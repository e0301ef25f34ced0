"""Shows that the tests of the device see what they are for: `run.py [NAME…]`.

Each patch beside this file puts one mistake into the code that streams to a GPU. All sources are
copied to build/mutations; there each patch is applied by itself, what is needed is built, and the
tests that the patch names must fail. Without any patch they must pass. Exit 1 when a mistake goes
unseen or a patch does not apply any more.
"""

import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCRATCH = ROOT / "build/mutations/source"
BUILD = ROOT / "build/mutations/build"
# Seconds that tests may take: a mistake may also make them wait for good.
TESTS_S_MAX = 300


def run(command: list[str], **options) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, **options)


def must(command: list[str], **options) -> None:
    done = run(command, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def copy_sources() -> None:
    """Files that are the same stay as they are, so that a second run builds little."""
    listed = run(["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z", "--cached",
                  "--others", "--exclude-standard"]).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        source, target = ROOT / name, SCRATCH / name
        if not source.is_file():
            continue
        data = source.read_bytes()
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def configure() -> None:
    # What is built soonest: no optimisation, joined sources, one architecture. (The fake driver
    # runs the kernels that are compiled for the host.)
    must(["cmake", "-S", str(SCRATCH), "-B", str(BUILD), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
          "-DCMAKE_CXX_FLAGS_DEBUG=-O0", "-DCMAKE_UNITY_BUILD=ON", "-DTP_BUILD_APPS=OFF",
          "-DTP_CUDA=ON", "-DTP_CUDA_ARCHITECTURES=75"])  # fmt: skip


def build() -> subprocess.CompletedProcess:
    jobs = str(os.cpu_count() or 1)
    return run(["cmake", "--build", str(BUILD), "-j", jobs, "--target", "tests_device"])


def failing_tests(names: str) -> list[str]:
    """Tests that fail, or why all of them did."""
    program = BUILD / "tests/device/tests_device"
    try:
        done = run([str(program), f"--gtest_filter={names}"], timeout=TESTS_S_MAX)
    except subprocess.TimeoutExpired:
        return [f"(still running after {TESTS_S_MAX} s)"]
    failed = [line.split()[3].rstrip(",") for line in done.stdout.splitlines()
              if line.startswith("[  FAILED  ] ") and "(" in line]  # fmt: skip
    if done.returncode != 0 and not failed:
        failed = [f"(ended with {done.returncode})"]
    return failed


def tests_of(patch: pathlib.Path) -> str:
    for line in patch.read_text(encoding="utf-8").splitlines():
        if line.startswith("Tests: "):
            return line.removeprefix("Tests: ")
    sys.exit(f"{patch.name} has no line 'Tests: FILTER'")


def try_patch(patch: pathlib.Path) -> str | None:
    """What is wrong, if anything is."""
    names = tests_of(patch)
    applied = run(["patch", "-p1", "--no-backup-if-mismatch", "-d", str(SCRATCH),
                   "-i", str(patch)])  # fmt: skip
    try:
        if applied.returncode != 0:
            return f"does not apply: {applied.stdout.strip()}"
        built = build()
        if built.returncode != 0:
            return f"does not build: {built.stdout[-2000:]}"
        failed = failing_tests(names)
        print(f"  seen by {', '.join(failed[:3])}" if failed else "  NOT SEEN")
        return None if failed else f"no test of {names} fails"
    finally:
        copy_sources()


def main() -> int:
    patches = sorted(HERE.glob("*.patch"))
    if len(sys.argv) > 1:
        patches = [patch for patch in patches if patch.stem in sys.argv[1:]]
    copy_sources()
    configure()
    built = build()
    if built.returncode != 0:
        sys.exit(built.stdout[-4000:])
    failed = failing_tests(":".join(tests_of(patch) for patch in patches))
    if failed:
        sys.exit(f"these fail without any mistake: {', '.join(failed)}")
    wrong = []
    for patch in patches:
        begin = time.monotonic()
        print(patch.stem, flush=True)
        if reason := try_patch(patch):
            wrong.append(f"{patch.stem}: {reason}")
        print(f"  {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{len(patches) - len(wrong)} of {len(patches)} mistakes are seen")
    print("\n".join(wrong))
    return 1 if wrong or not patches else 0


if __name__ == "__main__":
    sys.exit(main())
