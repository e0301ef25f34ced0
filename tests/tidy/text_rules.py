"""Rules on names, layout and calls; each yields (line number, message)."""

import re
from collections.abc import Iterator

from source_text import SourceFile

Finding = tuple[int, str]

COLUMNS_MAX = 100
# Notes to tools that must stand on the line that they are about.
_TOOL_NOTE = re.compile(r"\s*(?:# type: ignore\b|# noqa\b|// NOLINT\b|# pylint:).*$")
_CODE_ENDINGS = (".h", ".cpp", ".cu", ".cuh", ".S", ".py", ".sh", ".cmake", "CMakeLists.txt")
_BUILD_FILES = re.compile(
    r"^(?:bootstrap|\.ci/.*|scripts/.*|cmake/.*|.*CMakeLists\.txt|.*requirements.*)$"
)

# In libraries: they print nothing, end nothing, read no environment, and free by ownership.
_BANNED_CALLS = (
    (r"\bstd::(?:cout|cerr|clog|print|println)\b", "a library prints nothing"),
    (r"(?<!\w)(?:v?f?printf|puts|fputs|putchar|perror)\s*\(", "a library prints nothing"),
    (r"(?<![\w.>])(?:_?exit|_Exit|quick_exit|terminate)\s*\(", "a library never ends the process"),
    (r"(?<![\w.>])abort\s*\(", "a library never ends the process; TP_ASSERT is for our own bugs"),
    (r"(?<!operator )\bnew\b", "own it: std::make_unique or a container"),
    (r"(?<!operator )\bdelete\b", "own it: std::unique_ptr"),
    (r"(?<![\w.>])strerror(?:_r)?\s*\(", "errors from the system: Error::from_errno"),
    (r"(?<![\w.>])(?:secure_)?getenv\s*\(", "environment variables are read in apps/ and python/"),
    (r"\busing\s+namespace\s+std\s*;", "name what is used"),
)
_ALLOW = re.compile(r"//\s*tidy: allowed, \w+")


def check_calls(file: SourceFile) -> Iterator[Finding]:
    """Banned calls in libraries. A line may carry `// tidy: allowed, REASON`."""
    if not file.is_library:
        return
    for number, (line, code) in enumerate(zip(file.lines, file.code_lines), 1):
        if code.lstrip().startswith("#include") or _ALLOW.search(line):
            continue
        deleted = re.sub(r"=\s*delete\b", "", code)
        for pattern, advice in _BANNED_CALLS:
            found = re.search(pattern, deleted)
            if found:
                yield number, f"'{found[0].strip()}' in a library: {advice}"


def check_name(file: SourceFile) -> Iterator[Finding]:
    name = file.path.rsplit("/", 1)[-1]
    if file.path.endswith((".h", ".cpp", ".cu", ".cuh", ".S", ".py", ".sh")):
        if not re.fullmatch(r"[a-z0-9_]+(?:\.[a-z0-9]+)?\.\w+", name):
            yield 1, f"file name '{name}' is not in snake_case"


def check_header(file: SourceFile) -> Iterator[Finding]:
    if file.is_header:
        code = next((line.strip() for line in file.code_lines if line.strip()), "")
        if code != "#pragma once":
            yield 1, "a header starts with #pragma once"


def check_layout(file: SourceFile) -> Iterator[Finding]:
    if file.path.endswith(_CODE_ENDINGS) or file.path in ("bootstrap", ".ci/run"):
        for number, line in enumerate(file.lines, 1):
            columns = len(_TOOL_NOTE.sub("", line))
            if columns > COLUMNS_MAX:
                yield number, f"{columns} columns; {COLUMNS_MAX} at most"
            if line.endswith(("\r", " ", "\t")):
                yield number, "space at the end of the line"
            if "\t" in line:
                yield number, "tab; indent with spaces"
        if file.text and not file.text.endswith("\n"):
            yield len(file.lines), "no line end at the end of the file"


# Paths that exist on one machine only, and addresses of package indexes: the package managers
# know where those are, on every machine its own.
_MACHINE_PATHS = re.compile(
    r"(?<![\w.~$}-])/(?:(?:work|root|Users|home/(?!user\b)|opt/(?!cuda\b))[/\w.])"
)
_INDEX_HOSTS = re.compile(r"py" + r"pi\.org|deb\." + r"debian\.org|npm" + r"js\.org")


def check_workplace(file: SourceFile) -> Iterator[Finding]:
    for number, line in enumerate(file.lines, 1):
        for pattern, advice in (
            (_MACHINE_PATHS, "a path of one machine"),
            (_INDEX_HOSTS, "the address of a package index"),
        ):
            found = pattern.search(line)
            if found:
                yield number, f"'{found[0]}': {advice}"
        if _BUILD_FILES.match(file.path) and re.search(r"\b(?:https?|ftp)://", line):
            yield number, "build files fetch nothing by address"


TEXT_RULES = (check_calls, check_name, check_header, check_layout, check_workplace)
