"""Feeds every rule what it must refuse, and what it must let pass."""

import pathlib
import sys
import tempfile
import unittest

import tree
from include_rules import check_includes, layers
from source_text import SourceFile
from text_rules import check_calls, check_header, check_layout, check_name, check_workplace
from unity_rules import check_private_names, private_names

ORDER = ["libruntime", "libplan", "libformat", "libbase"]


def includes(path: str, *lines: str) -> list[str]:
    file = SourceFile(path, "\n".join(lines) + "\n")
    return [message for _, message in check_includes(file, ORDER)]


def calls(code: str, path: str = "libbase/a.cpp") -> list[str]:
    return [message for _, message in check_calls(SourceFile(path, code + "\n"))]


class Layers(unittest.TestCase):
    def test_reads_the_drawing_of_the_architecture_page(self):
        text = "```\napps ─┐\npython ┴─► libruntime ─► libplan ─► libformat ─► libbase   arrows\n"
        self.assertEqual(layers(text), ORDER)

    def test_refuses_a_page_without_the_drawing(self):
        with self.assertRaises(ValueError):
            layers("no drawing here")


class IncludeDirection(unittest.TestCase):
    def test_refuses_an_include_against_the_arrows(self):
        for path, header in (
            ("libbase/a.cpp", "format/dtype.h"),
            ("libformat/include/trash_panda/format/a.h", "plan/plan.h"),
            ("libplan/a.h", "runtime/streamer.h"),
        ):
            found = includes(path, f'#include "trash_panda/{header}"')
            self.assertEqual(len(found), 1, path)
            self.assertIn("arrows", found[0])

    def test_lets_an_include_along_the_arrows_pass_also_when_it_skips_a_layer(self):
        for path in ("libruntime/a.cpp", "apps/trash-panda/a.cpp", "python/native/a.cpp"):
            self.assertEqual(includes(path, '#include "trash_panda/base/error.h"'), [])
        self.assertEqual(includes("libbase/a.cpp", '#include "trash_panda/base/error.h"'), [])

    def test_refuses_a_library_that_the_page_does_not_know(self):
        self.assertIn("libgadget", includes("apps/a.cpp", '#include "trash_panda/gadget/a.h"')[0])

    def test_refuses_climbing_out_of_a_folder(self):
        self.assertEqual(len(includes("libplan/a.cpp", '#include "../libbase/secret.h"')), 1)

    def test_refuses_a_private_header_in_a_public_one(self):
        path = "libbase/include/trash_panda/base/a.h"
        self.assertEqual(len(includes(path, '#include "secret.h"')), 1)
        self.assertEqual(includes("libbase/a.cpp", '#include "secret.h"'), [])

    def test_ignores_an_include_in_a_comment_or_a_string(self):
        comment = '/*\n#include "trash_panda/plan/plan.h"\n*/'
        string = 'auto s = R"(\n#include <CLI/CLI.hpp>\n)";'
        self.assertEqual(includes("libbase/a.cpp", comment, string), [])


class ThirdParty(unittest.TestCase):
    def test_keeps_each_library_where_it_belongs(self):
        for header, good, bad in (
            ("CLI/CLI.hpp", "apps/trash-panda/a.cpp", "libplan/a.cpp"),
            ("toml++/toml.h", "libplan/a.cpp", "apps/trash-panda/a.cpp"),
            ("simdjson.h", "libformat/a.cpp", "libbase/a.cpp"),
            ("nanobind/nanobind.h", "python/native/a.cpp", "libruntime/a.cpp"),
            ("gtest/gtest.h", "tests/base/a.cpp", "libbase/a.cpp"),
        ):
            self.assertEqual(includes(good, f"#include <{header}>"), [], header)
            self.assertEqual(len(includes(bad, f"#include <{header}>")), 1, header)

    def test_keeps_torch_behind_the_bridge(self):
        header = "libtorch_bridge/include/trash_panda/torch/a.h"
        for path in (header, "libtorch_bridge/a.cpp", "examples/cpp/a.cpp", "tests/torch/a.cpp"):
            self.assertEqual(includes(path, "#include <ATen/core/Tensor.h>"), [], path)
            self.assertEqual(includes(path, '#include "trash_panda/torch/block_stream.h"'), [])
            self.assertEqual(len(includes(path, "#include <torch/torch.h>")), 1, path)
        for path in ("libruntime/a.cpp", "apps/trash-panda/a.cpp", "python/native/a.cpp"):
            found = includes(path, '#include "trash_panda/torch/block_stream.h"')
            self.assertEqual(len(found), 1, path)
            self.assertIn("LibTorch", found[0])

    def test_refuses_torch_in_libraries_and_apps(self):
        for header in ("torch/torch.h", "ATen/ATen.h", "c10/core/Device.h"):
            for path in ("libruntime/a.cpp", "apps/trash-panda/a.cpp"):
                self.assertEqual(len(includes(path, f"#include <{header}>")), 1)

    def test_keeps_third_parties_out_of_public_headers(self):
        path = "libformat/include/trash_panda/format/a.h"
        self.assertIn("public", includes(path, "#include <fmt/format.h>")[0])
        self.assertEqual(includes(path, "#include <vector>", "#include <cstdint>"), [])

    def test_refuses_a_dependency_that_nobody_decided_on(self):
        self.assertIn("not known", includes("libbase/a.cpp", "#include <boost/any.hpp>")[0])

    def test_knows_the_headers_of_the_system(self):
        lines = ("#include <sys/stat.h>", "#include <unistd.h>", "#include <linux/fs.h>")
        self.assertEqual(includes("libbase/a.cpp", *lines), [])

    def test_holds_that_the_planner_is_pure(self):
        for header in ("<thread>", "<fstream>", "<unistd.h>", '"trash_panda/base/file.h"'):
            self.assertEqual(len(includes("libplan/a.cpp", f"#include {header}")), 1, header)
        self.assertEqual(includes("libplan/a.cpp", '#include "name_tree.h"', "#include <map>"), [])


class Calls(unittest.TestCase):
    def test_refuses_what_a_library_must_not_do(self):
        for code in (
            'std::cout << "x";',
            'printf("x");',
            'std::fprintf(stderr, "x");',
            "exit(1);",
            "std::exit(1);",
            "::_exit(1);",
            "std::abort();",
            "auto* p = new int(3);",
            "delete p;",
            "delete[] p;",
            "auto s = strerror(errno);",
            'auto v = std::getenv("HOME");',
            "using namespace std;",
        ):
            self.assertEqual(len(calls(code)), 1, code)

    def test_lets_what_only_looks_like_it_pass(self):
        for code in (
            "File(const File&) = delete;",
            'int n = std::snprintf(b, 3, "x");',
            "// a new file, exit(1), delete p",
            'auto s = "printf(1) new delete p";',
            "void* operator new(std::size_t);",
            "auto new_size = renewed + on_exit(1);",
            "using namespace std::string_view_literals;",
            "auto n = 1'000; auto c = 'x'; auto m = 2'000;",
        ):
            self.assertEqual(calls(code), [], code)

    def test_leaves_apps_and_tests_alone(self):
        self.assertEqual(calls('std::cout << std::getenv("X");', "apps/trash-panda/a.cpp"), [])

    def test_takes_an_exception_only_with_its_reason(self):
        self.assertEqual(calls("std::abort();  // tidy: allowed, our own bug"), [])
        self.assertEqual(len(calls("std::abort();  // tidy: allowed")), 1)


class Text(unittest.TestCase):
    def found(self, rule, path: str, text: str) -> int:
        return len(list(rule(SourceFile(path, text))))

    def test_file_names_are_snake_case(self):
        for name in ("libbase/FileSystem.h", "libbase/file-system.cpp", "python/loadModel.py"):
            self.assertEqual(self.found(check_name, name, ""), 1, name)
        for name in ("apps/trash-panda/main.cpp", "python/a/__init__.py", "docs/ARCHITECTURE.md"):
            self.assertEqual(self.found(check_name, name, ""), 0, name)

    def test_headers_start_with_pragma_once(self):
        self.assertEqual(self.found(check_header, "libbase/a.h", "// Why.\n#pragma once\n"), 0)
        self.assertEqual(self.found(check_header, "libbase/a.h", "#ifndef A\n#pragma once\n"), 1)
        self.assertEqual(self.found(check_header, "libbase/a.h", ""), 1)
        self.assertEqual(self.found(check_header, "libbase/a.cpp", ""), 0)

    def test_lines_end_at_100_columns_counted_in_characters(self):
        self.assertEqual(self.found(check_layout, "libbase/a.h", "x" * 100 + "\n"), 0)
        self.assertEqual(self.found(check_layout, "libbase/a.h", "─" * 100 + "\n"), 0)
        self.assertEqual(self.found(check_layout, "libbase/a.h", "x" * 101 + "\n"), 1)
        self.assertEqual(self.found(check_layout, "README.md", "x" * 101 + "\n"), 0)
        noted = "x" * 100 + "  # type: ignore[no-untyped-call]\n"
        self.assertEqual(self.found(check_layout, "python/a.py", noted), 0)

    def test_lines_have_no_trailing_space_or_tab_and_the_last_one_ends(self):
        for text in ("a \n", "a\r\n", "a\tb\n", "a"):
            self.assertEqual(self.found(check_layout, "scripts/a.sh", text), 1, repr(text))

    def test_paths_of_one_machine_and_index_addresses_are_refused(self):
        for text in ("/" "work/main", "cd /" "root/x", "/" "home/ada/x", "py" "pi.org"):
            self.assertEqual(self.found(check_workplace, "README.md", text), 1, text)
        for text in ("~/work/x", "docs/work/x", "/home/user/x", "$root/work/", "/opt/cuda/bin"):
            self.assertEqual(self.found(check_workplace, "README.md", text), 0, text)

    def test_build_files_fetch_nothing_by_address(self):
        address = "https:" + "//example.com/x.tar.gz"
        self.assertEqual(self.found(check_workplace, "cmake/TpX.cmake", address), 1)
        self.assertEqual(self.found(check_workplace, "docs/x.md", address), 0)


class PrivateNames(unittest.TestCase):
    CODE = """namespace trash_panda {
namespace {

constexpr std::size_t kCountMax = 3;
const std::vector<int> kList{1};
using Json = nlohmann::json;
struct Pair {
  int inner(int);
};
Result<int> read_part(int from) {
  int local = call(from);
  return local;
}
std::vector<std::string>
read_names(std::string_view text) {
}

}  // namespace

int open_to_all(int x) { return x; }
}  // namespace trash_panda
"""

    def test_finds_what_is_defined_in_an_unnamed_namespace(self):
        names = [name for _, name in private_names(SourceFile("libbase/a.cpp", self.CODE))]
        self.assertEqual(names, ["kCountMax", "kList", "Json", "Pair", "read_part"])

    def test_refuses_one_name_in_two_files_of_a_library(self):
        found = list(
            check_private_names(
                [SourceFile("libbase/a.cpp", self.CODE), SourceFile("libbase/b.cpp", self.CODE)]
            )
        )
        self.assertEqual(len(found), 5)
        self.assertTrue(found[0].startswith("libbase/b.cpp:4: 'kCountMax' is private to libbase/a"))

    def test_lets_the_same_name_pass_in_two_libraries(self):
        files = [SourceFile("libbase/a.cpp", self.CODE), SourceFile("libplan/b.cpp", self.CODE)]
        self.assertEqual(list(check_private_names(files)), [])


class Tree(unittest.TestCase):
    def test_names_file_line_and_rule_in_a_tree_without_git(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in (
                ("docs/ARCHITECTURE.md", "libruntime ─► libplan ─► libformat ─► libbase\n"),
                ("libbase/a.cpp", '#include <vector>\n#include "trash_panda/plan/plan.h"\n'),
                ("build/libbase/Bad.cpp", "exit(1);"),
                ("tests/base/golden/Bad.h", "no pragma"),
            ):
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            found = list(tree.findings(root))
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith("libbase/a.cpp:2: libbase may not include"))

    def test_sees_the_project_itself(self):
        root = pathlib.Path(__file__).parents[2]
        paths = {file.path for file in tree.source_files(root)}
        self.assertLessEqual({"bootstrap", ".ci/run", "libbase/error.cpp"}, paths)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
