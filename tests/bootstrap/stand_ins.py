"""A copy of ./bootstrap in a folder of its own, with stand-ins for all that it would change.

Every stand-in appends its name and arguments to one file, so a test sees what was run.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Real programs that the script itself needs. Nothing else of the machine is on its PATH.
TOOLS = """awk bash cat chown dirname env find grep id mkdir mktemp nproc printf readlink rm sed
setarch sha256sum sort tail tee touch true uname xargs""".split()

RECORD = 'printf "%s %s\\n" "${0##*/}" "$*" >>"$STAND_INS/calls"\n'
PROGRAMS = {
    "dpkg-query": '[[ -e $STAND_INS/installed ]] && printf installed || exit 1\n',
    "apt-get": '[[ " $* " != *" install "* ]] || touch "$STAND_INS/installed"\n',
    "cmake": '[[ ! -e $STAND_INS/fail-cmake ]] || { echo "cmake is unhappy"; exit 1; }\n',
    "ctest": """[[ "$*" != *"$(cat "$STAND_INS/fail-ctest" 2>/dev/null || echo none)"* ]] ||
  { echo "50% tests passed, 1 tests failed out of 2"; exit 8; }
echo "100% tests passed, 0 tests failed out of 2"
""",
    "nvcc": "",
    "clang++-19": "cat >/dev/null\n",
    # Passes the probe; makes an environment whose Python is this same stand-in.
    "python3": """case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cat "$0" >"$3/bin/python" && chmod +x "$3/bin/python" ;;
  *"-m pip install"*torch.txt) [[ ! -e $STAND_INS/fail-pip ]] || { echo "no network"; exit 1; } ;;
  *"-m pip install"*" .") : >.venv/bin/trash-panda && chmod +x .venv/bin/trash-panda ;;
  "-m pytest"*) echo "===== 5 passed in 0.01s =====" ;;
  *tests/fuzz/run.py*) echo "fuzz: 2 targets, 9 executions, 0 with a finding" ;;
esac
""",
}


class Clone:
    """A project folder (with a space in its name) and a machine made of stand-ins."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bootstrap test "))
        self.folder.chmod(0o755)  # Another user must get in: one test runs as nobody.
        self.root = self.folder / "a clone"
        self.programs = self.folder / "programs"
        for made in (self.root / "python", self.root / "scripts", self.programs):
            made.mkdir(parents=True)
        shutil.copy(ROOT / "bootstrap", self.root)
        shutil.copytree(ROOT / "scripts/bootstrap", self.root / "scripts/bootstrap")
        for file in (ROOT / "python").glob("requirements-*.txt"):
            shutil.copy(file, self.root / "python")
        (self.root / "CMakeLists.txt").write_text("project(x)\n")
        for tool in (*TOOLS, "chmod"):
            found = shutil.which(tool)
            if found:
                (self.programs / tool).symlink_to(found)
        for name, body in PROGRAMS.items():
            self.add_program(name, body)

    def add_program(self, name: str, body: str) -> None:
        path = self.programs / name
        path.write_text(f"#!/bin/bash\n{RECORD}{body}")
        path.chmod(0o755)

    def remove_program(self, name: str) -> None:
        (self.programs / name).unlink()

    def set_flag(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    def run(self, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
        """Runs ./bootstrap from another folder; stdout and stderr come back as one text."""
        return subprocess.run(
            [*prefix, str(self.root / "bootstrap"), *arguments],
            cwd="/", text=True, stdin=subprocess.DEVNULL, timeout=60, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={
                "PATH": str(self.programs),
                "STAND_INS": str(self.folder),
                "PYTHON": str(self.programs / "python3"),
                "HOME": os.environ.get("HOME", "/"),
                "LC_ALL": "C.UTF-8",
            },
        )  # fmt: skip

    def calls(self, name: str) -> list[str]:
        """What a stand-in was called with, except as the probe of a Python."""
        try:
            lines = (self.folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [line for line in lines if line.split(" ", 1)[0] == name and " -c " not in line]

    def forget_calls(self) -> None:
        (self.folder / "calls").unlink(missing_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.folder)
