"""Source files as the rules see them: where a file stands, and its code without its prose."""

import dataclasses
import functools
import re

CPP_ENDINGS = (".h", ".cpp", ".cu", ".cuh", ".S")

# One alternative for each thing that can hold text which is not code. Numbers come first, as the
# digit separator of 1'000 would look like the start of a character.
_NOT_CODE = re.compile(
    r"""
    (?P<number>\b\d[\w.']*)
  | (?P<line_comment>//[^\n]*)
  | (?P<block_comment>/\*.*?\*/)
  | (?P<raw_string>R"(?P<tag>[^()\\\s]*)\(.*?\)(?P=tag)")
  | (?P<include>^\s*\#\s*include\s*[<"][^>"\n]*[>"])
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<character>'(?:\\.|[^'\\\n])+')
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def _blank(match: re.Match) -> str:
    if match["number"] or match["include"]:
        return match[0]
    return re.sub(r"[^\n]", " ", match[0])


@dataclasses.dataclass(frozen=True)
class Include:
    line: int
    target: str
    quoted: bool


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file of the repository; `path` is relative to its root, with forward slashes."""

    path: str
    text: str

    @property
    def is_cpp(self) -> bool:
        return self.path.endswith(CPP_ENDINGS)

    @property
    def is_header(self) -> bool:
        return self.path.endswith((".h", ".cuh"))

    @property
    def place(self) -> str:
        """The part of the project that the file belongs to: `libbase`, `apps`, `tests`, …"""
        if self.path.startswith("python/native/"):
            return "python/native"
        return self.path.split("/", 1)[0] if "/" in self.path else ""

    @property
    def is_library(self) -> bool:
        return self.is_cpp and self.place.startswith("lib")

    @property
    def is_public_header(self) -> bool:
        return self.is_library and "/include/trash_panda/" in self.path

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @functools.cached_property
    def code_lines(self) -> list[str]:
        """Lines with comments, strings and characters blanked; columns stay where they were."""
        return _NOT_CODE.sub(_blank, self.text).split("\n")

    @functools.cached_property
    def includes(self) -> list[Include]:
        found = ((number, _INCLUDE.match(line)) for number, line in enumerate(self.code_lines, 1))
        return [Include(number, m[2], m[1] == '"') for number, m in found if m]
