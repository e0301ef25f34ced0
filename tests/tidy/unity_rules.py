"""Names in unnamed namespaces are unique within a library, as some presets compile several of
its sources as one (CMAKE_UNITY_BUILD): what is private to a file is seen by its neighbours there.
"""

import re
from collections.abc import Iterable, Iterator

from source_text import SourceFile

# Definitions start in the first column, as clang-format lays them out.
_TYPE = re.compile(r"^(?:struct|class|enum(?: class)?|union)\s+(\w+)\b(?!.*;)")
_ALIAS = re.compile(r"^using\s+(\w+)\s*=")
_VARIABLE = re.compile(
    r"^(?:inline\s+|static\s+)*const(?:expr|init)?\s[^=({;]*?\b(\w+)\s*(?:=|\{|\[)"
)
_FUNCTION = re.compile(r"^(?!return|else|case|using|namespace)[\w\[][^=;(]*?[\s*&>](\w+)\(")


def private_names(file: SourceFile) -> Iterator[tuple[int, str]]:
    """(line, name) of each definition in an unnamed namespace of the file."""
    depth = 0  # Of braces; `inside` is the depth at which an unnamed namespace began.
    inside: int | None = None
    for number, line in enumerate(file.code_lines, 1):
        if re.match(r"^namespace\s*\{", line):
            inside = depth
        elif inside is not None and depth == inside + 1:
            for pattern in (_TYPE, _ALIAS, _VARIABLE, _FUNCTION):
                found = pattern.match(line)
                if found:
                    yield number, found[1]
                    break
        depth += line.count("{") - line.count("}")
        if inside is not None and depth <= inside:
            inside = None


def check_private_names(files: Iterable[SourceFile]) -> Iterator[str]:
    first: dict[tuple[str, str], str] = {}
    for file in files:
        unit = file.path.rsplit("/", 1)[0]
        for line, name in private_names(file):
            earlier = first.setdefault((unit, name), file.path)
            if earlier != file.path:
                yield f"{file.path}:{line}: '{name}' is private to {earlier} too: rename one"
