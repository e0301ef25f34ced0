"""The stub of the native module says what is in it, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trash_panda
from trash_panda import _native

Function = ast.FunctionDef
TYPES_ONLY = {"TypedDict"}


def stub() -> ast.Module:
    file = Path(trash_panda.__file__).with_name("_native.pyi")
    return ast.parse(file.read_text(encoding="utf-8"))


def functions(body: list[ast.stmt]) -> Iterator[Function]:
    yield from (node for node in body if isinstance(node, ast.FunctionDef))


def classes() -> Iterator[ast.ClassDef]:
    """Those that exist at run time."""
    for node in stub().body:
        bases = {base.id for base in getattr(node, "bases", []) if isinstance(base, ast.Name)}
        if isinstance(node, ast.ClassDef) and not bases & TYPES_ONLY:
            yield node


def parameters(function: Function) -> list[str]:
    found = function.args
    return [each.arg for each in (*found.posonlyargs, *found.args, *found.kwonlyargs)]


def native_parameters(function: Any) -> list[str]:
    # Defaults are an escape there, which Python's grammar does not know.
    text = function.__nb_signature__[0][0].replace("\\", "")
    parsed = ast.parse(f"{text}: ...").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    return parameters(parsed)


def public(names: Any) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_the_package_is_typed() -> None:
    assert Path(trash_panda.__file__).with_name("py.typed").exists()


def test_the_module_has_what_the_stub_has() -> None:
    # Arrays are nanobind's own class, whose name is not in the module.
    declared = {node.name for node in (*classes(), *functions(stub().body))} - {"Array"}
    assert public(vars(_native)) == declared


def test_functions_take_what_the_stub_says() -> None:
    for function in functions(stub().body):
        assert native_parameters(getattr(_native, function.name)) == parameters(function)


def test_classes_have_what_the_stub_has() -> None:
    for node in classes():
        if node.name == "Array":
            continue
        native = getattr(_native, node.name)
        methods = {each.name: each for each in functions(node.body)}
        assert public(vars(native)) == public(methods)
        for name, method in methods.items():
            decorators = {d.id for d in method.decorator_list if isinstance(d, ast.Name)}
            if "property" not in decorators:
                assert native_parameters(getattr(native, name)) == parameters(method)


def test_everything_public_exists_and_is_documented() -> None:
    for name in trash_panda.__all__:
        value = getattr(trash_panda, name)
        assert name.startswith("__") or (value.__doc__ or "").strip()
