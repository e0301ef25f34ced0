"""Runs one case through the command line and says how it ended."""

import dataclasses
import enum
import json
import os
import pathlib

from case import Case
from compare import byte_differences, differences
from pack_values import Pack, read_pack, read_safetensors
from program import Program, Run

# Exit codes of the classes that are not "corrupt or unsupported" (4): what helps is a download.
_EXIT_CODES = {"missing_shard": 3}
# What a refusal of a format as a whole is called: by the format, or by what it is not.
_REFUSALS = ("unsupported_format", "gguf", "pickle", "dtype")
# How the cases call scales, and how the pack does.
_GRANULARITIES = {
    "fp8_plain": (None,),
    "fp8_tensor": ("tensor",),
    "fp8_channel": ("row",),
    "fp8_expert": ("row",),
    "fp8_group": ("block",),
    "mxfp8": ("block",),
    "fp8_block": ("block", "tensor"),  # A grid of one tile is a scale per tensor as well.
}


class Ending(enum.Enum):
    VALUES = "by value"
    REFUSED = "refused by name"
    ERROR = "error as asked"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Verdict:
    ending: Ending
    why: str = ""


class Unexpected(Exception):
    """The program did what the case does not allow."""


def _demand(condition: object, why: str) -> None:
    if not condition:
        raise Unexpected(why)


def _demand_names(names: list[str], text: str) -> None:
    for name in names:
        # Control characters are shown escaped: a message is one line.
        shown = json.dumps(name)[1:-1] if not name.isprintable() else name
        _demand(name in text or shown in text, f'no mention of "{name}" in: {text}')


def _demand_failure(run: Run, command: str) -> dict:
    """A failure as the manual has it: nothing on stdout, one object at the end of stderr."""
    _demand(run.out == "", f"{command} fails, but writes to stdout: {run.out[:200]}")
    try:
        error = run.error
    except (ValueError, IndexError):
        raise Unexpected(f"{command} ends with {run.exit_code} and no object: {run.err}") from None
    _demand(
        {"type", "code", "exit", "message", "hint"} <= set(error) and error["type"] == "error",
        f"{command}: no error object: {error}",
    )
    _demand(error["exit"] == run.exit_code, f"{command} exits with {run.exit_code}: {error}")
    _demand("\n" not in error["message"], f"{command}: the message has several lines: {error}")
    return error


def _demand_class(case: Case, error: dict, command: str) -> None:
    wanted = case.error_class.split("_or_")
    _demand(error["code"] in wanted, f"{command}: class {error['code']}, not {wanted}: {error}")
    exit_code = _EXIT_CODES.get(error["code"], 4)
    _demand(error["exit"] == exit_code, f"{command}: exit {exit_code} is due: {error}")
    _demand_names(case.message_names, error["message"])


def _judge_error(
    case: Case, program: Program, inspected: Run, packed: Run, pack: pathlib.Path
) -> Ending:
    if packed.exit_code == 0 and "values" in case.accepted:
        return _judge_values(case, program, inspected, pack)
    for command, run in (("inspect", inspected), ("repack", packed)):
        _demand(run.exit_code != 0, f"{command} accepts it, expected {case.error_class}")
        _demand_class(case, _demand_failure(run, command), command)
    return Ending.ERROR


def _judge_refusal(case: Case, inspected: Run, packed: Run) -> Ending:
    """A sound checkpoint that is not packed: by right, and by its format's name."""
    error = _demand_failure(packed, "repack")
    if f"error:{error['code']}" in case.accepted:
        return Ending.REFUSED
    _demand(case.may_be_refused, f"repack refuses it: {error}")
    _demand(error["code"] in _REFUSALS and error["exit"] == 4, f"refused as what? {error}")
    _demand_names(case.list_of("refusal_must_name"), f"{error['message']} {error['hint']}")
    if inspected.exit_code != 0:
        told = _demand_failure(inspected, "inspect")
        _demand(told["code"] == error["code"], f"inspect says {told}, repack {error}")
    return Ending.REFUSED


def _check_blocks(case: Case, document: dict) -> None:
    if "block_groups" not in case.expected:
        return
    keys = ("prefix", "count", "bytes_min", "bytes_max")
    found = [{key: group[key] for key in keys} for group in document["groups"]]
    wanted = [{key: group[key] for key in keys} for group in case.expected["block_groups"]]
    found.sort(key=lambda group: group["prefix"])
    wanted.sort(key=lambda group: group["prefix"])
    _demand(found == wanted, f"groups {found}, expected {wanted}")
    for key, name in (("non_block_bytes", "outside_bytes"), ("total_bytes", "total_bytes")):
        wanted_bytes = case.expected.get(key)
        if wanted_bytes is not None:
            _demand(document[name] == wanted_bytes, f"{name} {document[name]}, not {wanted_bytes}")


def _check_formats(case: Case, pack: Pack) -> None:
    for name, format_name in (case.expected.get("formats") or {}).items():
        allowed = _GRANULARITIES.get(format_name)
        if allowed and name in pack.parameters:
            scale = pack.parameters[name].scale
            found = scale["granularity"] if scale else None
            _demand(found in allowed, f"{name} is {format_name}, but has a scale per {found}")
            if format_name in ("fp8_group", "mxfp8"):
                _demand(scale["block_shape"][0] == 1, f"{name}: tiles {scale['block_shape']}")
            if format_name == "mxfp8":
                dtype = pack.parameters[name].scale_values.dtype
                _demand(dtype == "F8_E8M0", f"{name}: MX scales are stored as {dtype}")


def _check_pack(case: Case, pack: Pack) -> None:
    kept = [name for name in case.list_of("aux_tensors") if name in pack.parameters]
    _demand(not kept, f"kept as parameters: {kept}")
    if case.has_values:
        raw = case.expected.get("raw_tensors") or {}
        found = differences(pack, case.values, raw, case.expected.get("rtol") or 0)
    else:
        found = byte_differences(pack, read_safetensors(case.entry))
    _demand(not found, "; ".join(found[:5]))
    _check_formats(case, pack)


def _judge_values(case: Case, program: Program, inspected: Run, pack: pathlib.Path) -> Ending:
    _demand(inspected.exit_code == 0, f"repack takes what inspect does not: {inspected.err}")
    _demand_names(case.list_of("warnings_mention"), "\n".join(inspected.document["warnings"]))
    _check_blocks(case, inspected.document)
    _check_pack(case, read_pack(pack))
    verified = program.run("verify", pack)
    _demand(verified.exit_code == 0, f"verify: {verified.err}")
    return Ending.VALUES


def _judge_components(case: Case, program: Program, packed: Run, work: pathlib.Path) -> Ending:
    """A pipeline: refused as a whole by its components' names, and each of them packed."""
    error = _demand_failure(packed, "repack")
    _demand(error["code"] == "pipeline", f"repack says {error}")
    components = case.expected["components"]
    _demand_names(list(components), f"{error['message']} {error['hint']}")
    parameters = {}
    for name, count in components.items():
        pack = work / f"{name}.panda"
        run = program.run("repack", case.entry / name, "-o", pack)
        _demand(run.exit_code == 0, f"repack {name}: {run.err}")
        tensors = read_pack(pack).parameters
        parameters |= {f"{name}:{tensor}": value for tensor, value in tensors.items()}
        _demand(sum(len(value.data) for value in tensors.values()) == count, f"bytes of {name}")
    found = differences(Pack(parameters, {}), case.values, {}, case.expected.get("rtol") or 0)
    _demand(not found, "; ".join(found[:5]))
    return Ending.VALUES


def _check_traces(case: Case, runs: tuple[Run, ...], work: pathlib.Path, outside: list) -> None:
    """What a case must not leave behind, on the screen or on the disk."""
    for text in case.list_of("must_not_print"):
        _demand(not any(text in run.out + run.err for run in runs), f"it printed: {text}")
    _demand(_names(work.parent) == outside, f"it wrote beside its output: {_names(work.parent)}")


def _names(folder: pathlib.Path) -> list[str]:
    return sorted(os.listdir(folder))


def judge(case: Case, program: Program, work: pathlib.Path) -> Verdict:
    """How the case ended. `work`: an empty folder of its own, in one that holds nothing else."""
    outside = _names(work.parent)
    pack = work / "out.panda"
    inspected = program.run("inspect", case.entry)
    packed = program.run("repack", case.entry, "-o", pack)
    try:
        if case.is_error:
            ending = _judge_error(case, program, inspected, packed, pack)
        elif "components" in case.expected:
            ending = _judge_components(case, program, packed, work)
        elif packed.exit_code != 0:
            ending = _judge_refusal(case, inspected, packed)
        else:
            ending = _judge_values(case, program, inspected, pack)
        _check_traces(case, (inspected, packed), work, outside)
        if ending in (Ending.ERROR, Ending.REFUSED):
            _demand(not _names(work), f"it failed and left {_names(work)}")
    except (Unexpected, ValueError, KeyError) as failure:
        return Verdict(Ending.FAILED, str(failure).strip())
    return Verdict(ending)
