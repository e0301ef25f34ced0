"""Who may include whom: the layers of docs/ARCHITECTURE.md, and where each third party stays."""

import re
from collections.abc import Iterator

from source_text import Include, SourceFile

Finding = tuple[int, str]

# Third-party headers by the start of their name, and the parts of the project that may include
# them. A header that is listed nowhere is refused: a new dependency is a decision, made here.
THIRD_PARTY = {
    "CLI/": ("apps",),
    "fmt/": ("apps", "bench", "libbase", "libformat", "libplan", "libruntime", "man",
             "python/native", "tests"),
    "toml++/": ("libplan",),
    "simdjson.h": ("libformat",),
    "nlohmann/": ("apps", "libformat", "libplan", "libruntime", "tests"),
    "xxhash.h": ("libformat",),
    "zstd.h": ("libformat",),
    "hwloc.h": ("libruntime",),
    "liburing.h": ("libruntime",),
    "cuda.h": ("libruntime",),
    "nanobind/": ("python/native",),
    "gtest/": ("tests",),
    "gmock/": ("tests",),
    "benchmark/": ("bench",),
    "sanitizer/": ("tests",),
    "torch/": (),
    "ATen/": ("libtorch_bridge", "examples", "tests"),
    "c10/": ("libtorch_bridge", "examples", "tests"),
    "Python.h": (),
}
# The bridge lies on libruntime, beside the apps. Its headers, alone among public ones, include
# LibTorch, which neither the command line nor the Python package may load.
_BRIDGE = "libtorch_bridge"
_BRIDGE_HEADERS = "trash_panda/torch/"
_BRIDGE_USERS = (_BRIDGE, "examples", "tests")
# Headers of the C library and the kernel; those of C++ have neither a dot nor a slash.
_SYSTEM = re.compile(
    r"^(?:[a-z_]+|(?:sys|linux|asm|netinet|arpa|net)/[\w/.]+\.h"
    r"|(?:arm_neon|cpuid|dirent|dlfcn|elf|endian|errno|fcntl|fenv|fnmatch|glob|immintrin|link"
    r"|malloc|mntent|poll|pthread|pwd|sched|signal|spawn|stdint|termios|unistd|wait|x86intrin)\.h)$"
)
# libplan decides and touches nothing: no files, clock, threads or devices.
_IMPURE = re.compile(
    r"^(?:atomic|condition_variable|cstdio|fstream|future|iostream|mutex|random|stop_token|thread"
    r"|(?!stdint|errno|fenv|endian)\w+\.h|(?:sys|linux)/.*"
    r"|trash_panda/base/(?:aligned_buffer|file|file_system|log|progress)\.h)$"
)


def layers(architecture_text: str) -> list[str]:
    """The libraries in the order of the drawing: each may include those after it."""
    chain = re.search(r"lib\w+(?:\s*─►\s*lib\w+)+", architecture_text)
    if chain is None:
        raise ValueError("docs/ARCHITECTURE.md has no line 'libruntime ─► … ─► libbase'")
    return re.findall(r"lib\w+", chain[0])


def _own_header(file: SourceFile, include: Include, order: list[str]) -> str | None:
    """What is wrong with including one of our public headers here, if anything is."""
    if include.target.startswith(_BRIDGE_HEADERS):
        if file.place in _BRIDGE_USERS:
            return None
        return f"{include.target} brings LibTorch along, which is not for {file.place}"
    library = "lib" + include.target.split("/")[1]
    if library not in order:
        return f"{include.target}: there is no {library} in docs/ARCHITECTURE.md"
    if file.place in order and order.index(library) < order.index(file.place):
        return f"{file.place} may not include {include.target}: the arrows point the other way"
    return None


def _third_party(file: SourceFile, include: Include) -> str | None:
    for start, places in THIRD_PARTY.items():
        if include.target.startswith(start):
            if file.is_public_header and file.place != _BRIDGE:
                return f"{include.target} is not ours: keep it out of public headers"
            if file.place not in places:
                allowed = ", ".join(places) or "nowhere"
                return f"{include.target} is not for {file.place}; allowed in: {allowed}"
            return None
    return f"{include.target} is not known; say in tests/tidy/include_rules.py where it may be used"


def check_includes(file: SourceFile, order: list[str]) -> Iterator[Finding]:
    if not file.is_cpp:
        return
    for include in file.includes:
        message = None
        if ".." in include.target.split("/"):
            message = f"{include.target}: include by the path under an include folder, without '..'"
        elif include.target.startswith("trash_panda/"):
            message = _own_header(file, include, order)
        elif include.quoted:
            # A private header of the same part; the compiler holds that it exists there.
            if file.is_public_header:
                message = f"{include.target} is private: keep it out of public headers"
        elif not _SYSTEM.match(include.target):
            message = _third_party(file, include)
        own_or_system = not include.quoted or include.target.startswith("trash_panda/")
        if file.place == "libplan" and own_or_system and _IMPURE.match(include.target):
            message = f"{include.target}: libplan is pure: no files, clock, threads or devices"
        if message is not None:
            yield include.line, message
