"""The signatures of all public names, as `signatures.json` records them for a release.

Imports the standard library; the public modules of the package when it reads them, and so all the
frameworks: it runs in a process of its own. `python -m tests.unit.signatures` prints what there is
now, and with `--record` writes the file anew. docs/compatibility.md says when that is allowed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.site.reference import INSIDE

RECORD = Path(__file__).with_name("signatures.json")
MODULES = """reader reader.images reader.collate reader.errors reader.data reader.compat.torch
reader.compat.paddle reader.compat.gluon""".split()
INTEGRATIONS = """lightning nvtx paddle prometheus pytorch_lightning rich tensorboard tqdm
transformers visualdl""".split()
# How an object is used, where it is more than a plain name.
SPECIAL = "__call__ __enter__ __exit__ __getitem__ __iter__ __len__ __next__".split()
ATTRIBUTE = "attribute"
# How a parameter is passed, in the words of the record.
PASSED = dict(zip(inspect._ParameterKind, ("place", "either", "*", "name", "**")))
REQUIRED = "required"

Parameters = dict[str, list[str]]  # each: how it is passed, and its default
Signatures = dict[str, Any]  # of a name: its Parameters, or ATTRIBUTE


def read() -> tuple[Signatures, list[str]]:
    """Return the signature of each public name, and the modules that cannot be imported here."""
    found: Signatures = {}
    absent = []
    for name in [*MODULES, *(f"reader.integrations.{each}" for each in INTEGRATIONS)]:
        try:
            module = importlib.import_module(name)
        except (ImportError, ValueError):  # a ConfigError names the library that is missing
            absent.append(name)
        else:
            found.update(of_module(module))
    return dict(sorted(found.items())), absent


def of_module(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield name and signature of each public name that is ours."""
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.ismodule(thing):
            yield from of_module(thing)
        elif isinstance(thing, type):
            if is_ours(thing):
                yield from of_class(f"{module.__name__}.{name}", thing)
        elif not callable(thing):
            yield f"{module.__name__}.{name}", ATTRIBUTE
        elif is_ours(thing):
            yield f"{module.__name__}.{name}", parameters_of(thing)


def is_ours(thing: Any) -> bool:
    """Tell whether the package defines it, not a library whose names it re-exports."""
    return str(getattr(thing, "__module__", "")).split(".")[0] == "reader"


def of_class(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the signature of a class's call, and of each public method and attribute of ours."""
    ours = [each for each in kind.__mro__ if is_ours(each)]
    makers = [each for each in ours if {"__init__", "__new__", "__cinit__"} & vars(each).keys()]
    yield name, call_of(kind) if makers else {}
    members: set[str] = set()
    for each in ours:
        members |= vars(each).keys() | getattr(each, "__annotations__", {}).keys()
    for member in sorted(members):
        if member.startswith("_") and member not in SPECIAL:
            continue
        if member in INSIDE and kind.__module__.startswith("reader._core"):
            continue
        value = inspect.getattr_static(kind, member, None)
        if isinstance(value, (staticmethod, classmethod)):
            value = getattr(kind, member)
        is_method = callable(value) and not isinstance(value, type) and value is not None
        yield f"{name}.{member}", parameters_of(value, kind, member) if is_method else ATTRIBUTE


def call_of(kind: type) -> Parameters:
    """Return the parameters of a class's call."""
    try:
        return parameters_in(inspect.signature(kind))
    except ValueError:
        return stub_of(kind, "__init__") or stub_of(kind, "__new__")


def parameters_of(function: Any, kind: type | None = None, name: str = "") -> Parameters:
    """Return the parameters of a function, or of a method of a class, without `self`."""
    try:
        found = parameters_in(inspect.signature(function))
    except ValueError:
        return stub_of(kind, name) if kind else {}
    found.pop("self", None)
    return found


def parameters_in(signature: inspect.Signature) -> Parameters:
    """Return the parameters of a signature."""
    return {
        each.name: [PASSED[each.kind], text_of(each.default)]
        for each in signature.parameters.values()
    }


def text_of(default: Any) -> str:
    """Return how a default is written; the same in every process."""
    if default is inspect.Parameter.empty:
        return REQUIRED
    if isinstance(default, type) or inspect.isroutine(default):
        return f"{default.__module__}.{default.__qualname__}"
    text = repr(default)
    return f"<{type(default).__qualname__}>" if " at 0x" in text else text


def stub_of(kind: type, name: str) -> Parameters:
    """Return the parameters of a compiled method, which only its stub knows."""
    for each in kind.__mro__:
        if not is_ours(each):
            continue
        module = sys.modules[each.__module__]
        stub = Path(str(module.__file__)).with_name(f"{module.__name__.split('.')[-1]}.pyi")
        if not stub.exists():
            continue
        for node in ast.walk(ast.parse(stub.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef) or node.name != each.__name__:
                continue
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and part.name == name:
                    return parameters_in_stub(part)
    return {}


def parameters_in_stub(function: ast.FunctionDef) -> Parameters:
    """Return the parameters of a function in a stub, without `self`."""
    own, found = function.args, {}
    given = [*[None] * (len(own.posonlyargs + own.args) - len(own.defaults)), *own.defaults]
    for argument, default in zip(own.posonlyargs + own.args, given):
        kind = "place" if argument in own.posonlyargs else "either"
        found[argument.arg] = [kind, ast.unparse(default) if default else REQUIRED]
    if own.vararg:
        found[own.vararg.arg] = ["*", REQUIRED]
    for argument, default in zip(own.kwonlyargs, own.kw_defaults):
        found[argument.arg] = ["name", ast.unparse(default) if default else REQUIRED]
    if own.kwarg:
        found[own.kwarg.arg] = ["**", REQUIRED]
    return {name: each for name, each in found.items() if name not in ("self", "cls")}


def broken(was: Signatures, now: Signatures) -> list[str]:
    """Return each incompatible change from `was` to `now`, as one sentence."""
    found = []
    for name, before in was.items():
        if name not in now:
            found.append(f"{name} is gone")
        elif before == ATTRIBUTE or now[name] == ATTRIBUTE:
            if before != now[name]:
                found.append(f"{name} is no {'attribute' if before == ATTRIBUTE else 'call'} now")
        else:
            found += [f"{name}: {each}" for each in broken_call(before, now[name])]
    return found


def broken_call(was: Parameters, now: Parameters) -> Iterator[str]:
    """Yield how calls written for one signature fail with another."""
    variadic, by_place, by_name = ("*", "**"), ("place", "either"), ("name", "either")
    places_now = [name for name, (kind, _) in now.items() if kind in by_place]
    place = 0
    for name, (kind, default) in was.items():
        if name not in now:
            yield f"its parameter {name} is gone"
            continue
        kind_now, default_now = now[name]
        if kind in variadic:
            if kind_now != kind:
                yield f"{name} was {kind} and is {kind_now}"
            continue
        if default not in (default_now, REQUIRED):
            yield f"the default of {name} was {default} and is {default_now}"
        if kind in by_name and kind_now not in by_name:
            yield f"{name} can no longer be passed by name"
        if kind in by_place:
            if places_now[place : place + 1] != [name]:
                yield f"{name} is no longer positional parameter {place}"
            place += 1
    for name, (kind, default) in now.items():
        if name not in was and default == REQUIRED and kind not in variadic:
            yield f"its new parameter {name} has no default"


def is_within(name: str, modules: list[str]) -> bool:
    """Tell whether a name is one of these modules'."""
    return name.startswith(tuple(f"{each}." for each in modules))


def recorded() -> Signatures:
    """Return what the file holds."""
    found: Signatures = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def write(signatures: Signatures) -> None:
    """Record the signatures, one name a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in signatures.items()]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Print the signatures, or record them; keep those of modules that cannot be imported."""
    signatures, absent = read()
    if arguments != ["--record"]:
        print(json.dumps([signatures, absent]))
        return 0
    kept = recorded() if RECORD.exists() else {}
    left = {name: each for name, each in kept.items() if is_within(name, absent)}
    write(dict(sorted((signatures | left).items())))
    print(f"recorded {len(signatures)} names; not here, and left as they were: {', '.join(absent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
