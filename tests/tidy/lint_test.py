"""scripts/lint.py on a project of one file: what it must find, let pass and remember."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ("clang-format", "clang-tidy")
GOOD = "int half(int count) {\n  return count / 2;\n}\n"


class Lint(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="lint test "))
        self.addCleanup(shutil.rmtree, self.root)
        (self.root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts/lint.py", self.root / "scripts")
        for name in (".clang-format", ".clang-tidy"):
            shutil.copy(ROOT / name, self.root)
        if (ROOT / ".venv").exists():
            (self.root / ".venv").symlink_to(ROOT / ".venv")
        self.source = self.root / "libbase/half.cpp"
        self.source.parent.mkdir()
        build = self.root / "build/dev"
        build.mkdir(parents=True)
        command = f"g++ -std=c++23 -Wno-restrict -c '{self.source}' -o half.o"
        entry = {"directory": str(build), "file": str(self.source), "output": "half.o"}
        entry["command"] = command
        (build / "compile_commands.json").write_text(json.dumps([entry]))

    def lint(self, source: str, *options: str) -> subprocess.CompletedProcess:
        self.source.write_text(source)
        return subprocess.run(
            [sys.executable, "-B", str(self.root / "scripts/lint.py"), *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd="/",
        )  # fmt: skip

    def test_lets_clean_code_pass_under_options_that_clang_does_not_know(self):
        done = self.lint(GOOD)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("1 units, 0 unchanged, 0 with findings", done.stdout)

    def test_finds_what_clang_format_would_change_and_fixes_it_when_asked(self):
        crooked = GOOD.replace("(int count)", "( int count )")
        done = self.lint(crooked)
        self.assertEqual(done.returncode, 1)
        self.assertIn("half.cpp:1:10: error: code should be clang-formatted", done.stdout)
        self.assertEqual(self.lint(crooked, "--fix").returncode, 0)
        self.assertEqual(self.source.read_text(), GOOD)

    def test_finds_what_clang_tidy_refuses(self):
        done = self.lint("int* Half() {\n  return 0;\n}\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("modernize-use-nullptr", done.stdout)
        self.assertIn("readability-identifier-naming", done.stdout)

    def test_reads_joined_sources_once_and_only_ours(self):
        builds = []
        for name in ("asan", "python"):
            build = self.root / "build" / name
            unit = build / "base.dir/Unity/unity_0_cxx.cxx"
            theirs = build / "their.dir/Unity/unity_0_cxx.cxx"
            entries = []
            for file, source in ((unit, self.source), (theirs, self.root / ".venv/their.cpp")):
                file.parent.mkdir(parents=True)
                file.write_text(f'#include "{source}"\n')
                command = f"g++ -std=c++23 -c '{file}' -o {name}.o"
                entries.append({"directory": str(build), "file": str(file), "command": command})
            (build / "compile_commands.json").write_text(json.dumps(entries))
            builds += ["--build", str(build)]
        done = self.lint("int* Half() {\n  return nullptr;\n}\n", *builds)
        self.assertIn("1 units, 0 unchanged, 1 with findings", done.stdout)
        self.assertIn("readability-identifier-naming", done.stdout)

    def test_says_which_tree_to_configure_when_it_is_missing(self):
        done = self.lint(GOOD, "--build", str(self.root / "build/asan"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("cmake --preset asan", done.stdout)


if __name__ == "__main__":
    for tool in TOOLS:
        if not (ROOT / ".venv/bin" / tool).exists() and not shutil.which(f"{tool}-19"):
            print(f"skipped: no {tool} 19 here")
            sys.exit(77)
    unittest.main()
