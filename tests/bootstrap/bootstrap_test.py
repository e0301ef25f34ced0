"""What ./bootstrap says, does, repeats and refuses."""

import os
import shutil
import unittest

from stand_ins import Clone

IS_ROOT = os.geteuid() == 0


class BootstrapTest(unittest.TestCase):
    def setUp(self):
        self.clone = Clone()
        self.addCleanup(self.clone.remove)

    def run_ok(self, *arguments: str) -> str:
        done = self.clone.run(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout


class Usage(BootstrapTest):
    def test_help_names_every_command_and_option(self):
        text = self.run_ok("help")
        commands = ("deps", "build", "demo", "test", "fuzz", "clean")
        for word in (*commands, "--no-torch", "--no-cuda", "--jobs"):
            self.assertIn(word, text)

    def test_mistakes_exit_2_and_name_the_word(self):
        for arguments, word in (
            ((), "which command"),
            (("bulid",), "'bulid'"),
            (("build", "test"), "'test'"),
            (("build", "--jobs", "0"), "'0'"),
            (("build", "--jobs"), "--jobs"),
            (("build", "--preset=fast"), "'fast'"),
            (("demo", "--no-torch"), "--no-torch"),
            (("test", "30"), "'30'"),
            (("30", "fuzz"), "'30'"),
            (("fuzz", "0"), "'0'"),
            (("fuzz", "../x"), "'../x'"),
        ):
            done = self.clone.run(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(word, done.stdout)
            self.assertEqual(self.clone.calls("apt-get"), [])


class Packages(BootstrapTest):
    @unittest.skipUnless(IS_ROOT, "installs as root")
    def test_installs_what_is_missing_once(self):
        self.run_ok("deps")
        self.assertEqual(len(self.clone.calls("apt-get")), 2)
        self.assertIn("libsimdjson-dev", self.clone.calls("apt-get")[1])
        self.assertEqual(len(self.clone.calls("python")), 2)  # dev and torch; nvcc is there
        self.clone.forget_calls()

        self.assertEqual(self.run_ok("deps"), "")
        self.assertEqual(self.clone.calls("apt-get") + self.clone.calls("python"), [])

    def test_installs_again_only_what_changed(self):
        self.clone.set_flag("installed")
        self.run_ok("deps")
        self.clone.forget_calls()
        with (self.clone.root / "python/requirements-dev.txt").open("a") as file:
            file.write("# changed\n")
        self.run_ok("deps")
        self.assertEqual(len(self.clone.calls("python")), 1)
        self.assertIn("requirements-dev.txt", self.clone.calls("python")[0])

    def test_makes_the_environment_anew_in_a_moved_clone(self):
        self.clone.set_flag("installed")
        self.run_ok("deps")
        moved = self.clone.folder / "moved"
        self.clone.root.rename(moved)
        self.clone.root = moved
        self.assertIn("make the Python environment", self.run_ok("deps"))

    def test_without_torch_installs_none(self):
        self.clone.set_flag("installed")
        self.run_ok("deps", "--no-torch")
        self.assertNotIn("torch", " ".join(self.clone.calls("python")))

    def test_user_without_sudo_gets_the_command_for_root(self):
        prefix = ()
        if IS_ROOT:
            setpriv = shutil.which("setpriv")
            if setpriv is None:
                self.skipTest("no setpriv to become nobody with")
            prefix = (setpriv, "--reuid=65534", "--regid=65534", "--clear-groups")
        done = self.clone.run("deps", prefix=prefix)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("apt-get install -y --no-install-recommends g++ cmake", done.stdout)
        self.assertEqual(self.clone.calls("apt-get"), [])

    def test_system_without_apt_gets_the_list_and_the_way_on(self):
        self.clone.remove_program("apt-get")
        done = self.clone.run("deps")
        self.assertEqual(done.returncode, 1)
        self.assertIn("libsimdjson-dev", done.stdout)
        self.assertIn("--no-system", done.stdout)
        self.run_ok("deps", "--no-system")

    def test_failing_pip_shows_its_words_and_what_helps(self):
        self.clone.set_flag("installed")
        self.clone.set_flag("fail-pip")
        done = self.clone.run("deps")
        self.assertEqual(done.returncode, 1)
        for words in ("no network", "build/logs/pip-torch.log", "--no-torch"):
            self.assertIn(words, done.stdout)


class Build(BootstrapTest):
    def setUp(self):
        super().setUp()
        self.clone.set_flag("installed")

    def test_builds_the_preset_and_the_package_with_the_compiler_for_cuda(self):
        self.run_ok("build", "--preset", "dev", "--jobs", "3")
        self.assertIn(f"-DTP_NVCC={self.clone.programs}/nvcc", self.clone.calls("cmake")[0])
        self.assertEqual(self.clone.calls("cmake")[1], "cmake --build --preset dev -j 3")
        self.assertIn("--config-settings=cmake.define.TP_CUDA=AUTO", self.clone.calls("python")[-1])

    def test_builds_the_package_again_only_after_a_change(self):
        self.run_ok("build")
        self.clone.forget_calls()
        self.run_ok("build")
        self.assertEqual(self.clone.calls("python"), [])
        (self.clone.root / "CMakeLists.txt").write_text("project(y)\n")
        self.run_ok("build")
        self.assertEqual(len(self.clone.calls("python")), 1)

    def test_without_cuda_says_so_and_fetches_no_nvcc(self):
        self.clone.remove_program("nvcc")
        text = self.run_ok("build", "--no-cuda")
        self.assertIn("CUDA kernels: left out", text)
        self.assertIn("-DTP_CUDA=OFF", self.clone.calls("cmake")[0])
        self.assertNotIn("requirements-cuda", " ".join(self.clone.calls("python")))

    def test_builds_the_bridge_to_torch_unless_told_to_leave_torch_out(self):
        for options, value in (((), "AUTO"), (("--no-torch",), "OFF")):
            self.run_ok("build", "--preset", "dev", *options)
            self.assertIn(f"-DTP_TORCH={value}", self.clone.calls("cmake")[0])
            self.clone.forget_calls()

    def test_failed_build_exits_1_with_log_and_command(self):
        self.clone.set_flag("fail-cmake")
        done = self.clone.run("build")
        self.assertEqual(done.returncode, 1)
        for words in ("cmake is unhappy", "configure-release.log", "to repeat this step: cd "):
            self.assertIn(words, done.stdout)


class Test(BootstrapTest):
    def setUp(self):
        super().setUp()
        self.clone.set_flag("installed")

    def test_ends_with_the_summaries_of_all_runners(self):
        passed = "100% tests passed, 0 tests failed out of 2"
        python = "===== 5 passed in 0.01s ====="
        fuzz = "fuzz: 2 targets, 9 executions, 0 with a finding"
        lines = self.run_ok("test").splitlines()
        self.assertEqual(lines[-3:], [passed, fuzz, python])
        self.assertNotIn(passed, lines[:-3])
        lines = self.run_ok("test", "--full").splitlines()
        self.assertEqual(lines[-5:], [passed, fuzz, passed, passed, python])
        for preset in ("release", "asan", "tsan"):
            self.assertIn(f"--preset {preset} ", " ".join(self.clone.calls("ctest")))
        self.assertIn("--build build/asan", self.clone.calls("python")[-1])
        calls = "\n".join(self.clone.calls("python"))
        for checker in ("ruff check", "mypy", "pyright", "scripts/check_wheel.py build/wheel"):
            self.assertIn(checker, calls)

    def test_goes_on_after_a_failure_and_exits_1(self):
        self.clone.set_flag("fail-ctest", "asan")
        done = self.clone.run("test", "--full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("50% tests passed, 1 tests failed out of 2\n", done.stdout)
        self.assertIn("===== 5 passed in 0.01s =====\n", done.stdout)
        self.assertIn("failed: ctest-asan", done.stdout)

    def test_without_torch_leaves_its_tests_out(self):
        self.run_ok("test", "--no-torch")
        self.assertIn("not torch", " ".join(self.clone.calls("python")))

    def test_without_clang_says_that_nothing_was_fuzzed(self):
        self.clone.remove_program("clang++-19")
        lines = self.run_ok("test", "--no-system").splitlines()
        self.assertIn("fuzz: SKIPPED, no clang 19 with its fuzzer and sanitizers", lines[-3:])
        self.assertIn("WARNING: fuzz targets are neither built nor run", "\n".join(lines))
        self.assertNotIn("--preset fuzz", " ".join(self.clone.calls("cmake")))


class Fuzz(BootstrapTest):
    def setUp(self):
        super().setUp()
        self.clone.set_flag("installed")

    def test_builds_the_targets_and_runs_those_that_are_named(self):
        self.run_ok("fuzz", "300", "index", "plan_toml", "--jobs", "3")
        self.assertEqual(
            self.clone.calls("cmake"),
            ["cmake --preset fuzz", "cmake --build --preset fuzz -j 3"],
        )
        self.assertTrue(
            self.clone.calls("python3")[-1].endswith(
                "tests/fuzz/run.py --seconds 300 --jobs 3 index plan_toml"
            )
        )

    @unittest.skipUnless(IS_ROOT, "installs as root")
    def test_installs_clang_where_it_is_missing(self):
        self.clone.remove_program("clang++-19")
        done = self.clone.run("fuzz")
        self.assertEqual(done.returncode, 1, done.stdout)  # The stand-in of apt brings none.
        self.assertIn("clang-19 libclang-rt-19-dev", self.clone.calls("apt-get")[1])

    def test_without_clang_names_the_packages(self):
        self.clone.remove_program("clang++-19")
        done = self.clone.run("fuzz", "--no-system")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("apt-get install -y --no-install-recommends clang-19", done.stdout)
        self.assertEqual(self.clone.calls("apt-get"), [])


if __name__ == "__main__":
    unittest.main()
