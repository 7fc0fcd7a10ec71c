"""Hold the rooms apart: a room imports only rooms before it, in Python and in Cython alike.

A room may have floors: packages in it, of which each imports itself and those below alone. Reads
the sources under reader/ and cython_ext/reader/ without importing them, wherever in a file an
import stands. reader/README.md names every room, in an order that holds this. Run as ``python -m
tools.check_layers [ROOT]``; it prints each violation as ``file:line: message`` and exits 1 when
there is one.
"""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_CORE = ("errors", "places", "checks", "config", "_core", "files")
_DATA = (
    *_CORE,
    "cgroups",
    "cores",
    "available_memory",
    "worker_clock",
    "random",
    "sharing",
    "data",
)
_WORKER = (*_DATA, "policy", "log", "exceptions", "orders", "worker")
_ENGINE = (
    *(*_WORKER, "caching", "streams", "stores", "processes", "cluster", "collate"),
    *("frameworks", "engine"),
)

# The rooms that each room may import. The face (reader/__init__.py) may import all.
ROOMS: dict[str, tuple[str, ...]] = {
    "_version": (),
    "errors": (),
    "files": ("errors",),
    "cgroups": (),
    "available_memory": ("cgroups",),
    "cores": ("cgroups",),
    "worker_clock": ("cgroups",),
    "places": ("errors",),
    "policy": (),
    "log": (),
    "checks": ("errors",),
    "option_checks": ("errors", "checks", "cgroups", "cores"),
    "config": ("errors", "places", "checks", "option_checks"),
    "_core": ("errors", "places", "checks", "config"),
    "random": _CORE,
    "sharing": (*_CORE, "available_memory"),
    "exceptions": _CORE,
    "data": tuple(room for room in _DATA if room != "data"),
    "stores": _DATA,
    "formats": (*_DATA, "stores"),
    "orders": _DATA,
    "collate": _CORE,
    "worker": tuple(room for room in _WORKER if room != "worker"),
    "caching": _WORKER,
    "streams": _WORKER,
    "processes": _WORKER,
    "cluster": (*_WORKER, "processes", "_version"),
    "frameworks": (*_CORE, "data"),
    "engine": tuple(room for room in _ENGINE if room != "engine"),
    "images": (*_WORKER, "caching", "collate", "frameworks", "stores"),
    "observe": (*_ENGINE, "images", "_version", "the face"),
    "integrations": (*_ENGINE, "observe", "the face"),
    "loader": (*_ENGINE, "observe"),
    "shards": (*_ENGINE, "images", "observe", "loader"),
    "tokens": (*_ENGINE, "formats", "images", "observe", "loader", "shards"),
    "compat": (*_ENGINE, "formats", "observe", "loader"),
    "__main__": (
        *(*_ENGINE, "observe", "loader", "compat", "shards", "tokens"),
        *("_version", "the face"),
    ),
}
FACE = "the face"
# A public package whose `__init__` names what later rooms define: it imports that when it is asked
# for, and names it to type checkers.
LATER: dict[tuple[str, ...], tuple[str, ...]] = {("reader", "data", "__init__"): ("formats",)}

# the lowest first
FLOORS: dict[str, tuple[str, ...]] = {
    "_core": (
        "interpreter",
        "random",
        "memory",
        "shared",
        "pixels",
        "plans",
        "shards",
        "tokens",
        "batch",
        "collate",
        "wire",
        "epoch",
    ),
}

# Each of these is imported in reader/frameworks/<adapter>, in files beside it that are named
# <adapter>_..., and in reader/compat/<adapter> and reader/integrations/<adapter> alone; others
# look in sys.modules.
ADAPTERS = {"paddle": "paddle", "torch": "torch", "jax": "jax", "jaxlib": "jax", "mxnet": "mxnet"}
_HOMES = ("frameworks", "integrations", "compat")
DEPENDENCIES = {"numpy", "cloudpickle"}
OPTIONAL = {"ml_dtypes"}
# Optional, and imported in some files or rooms alone.
OF_ROOMS = {
    "simplejpeg": ("images",),
    "obstore": ("stores",),
    "boto3": ("stores",),
    "pandas": ("sharing",),
    "ray": ("cluster",),
    "pyarrow": ("formats", "shards"),
    **dict.fromkeys("array_record google_crc32c tifffile xxhash".split(), ("shards",)),
    "threadpoolctl": ("observe",),
    **dict.fromkeys(
        "lightning nvtx prometheus_client pytorch_lightning tqdm transformers".split(),
        ("integrations",),
    ),
    "tqdm": ("integrations", "shards"),
    **dict.fromkeys("sentencepiece tiktoken tokenizers".split(), ("tokens",)),
    "matplotlib": ("observe",),
    "rich": ("observe", "integrations"),
}
TYPES = {"typing_extensions"}  # type checkers bring it: imported below `if TYPE_CHECKING` alone
CYTHON = {"cython", "cpython", "libc", "libcpp", "posix"}
SUFFIXES = {".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h"}


@dataclass(frozen=True)
class Import:
    """One imported module, as an absolute dotted name.

    ``names`` are what a ``from`` import takes out of it: each may be a submodule or an attribute.
    ``is_for_types`` says that it stands below `if TYPE_CHECKING`.
    """

    line: int
    module: str
    names: tuple[str, ...] = ()
    is_for_types: bool = False


def python_imports(text: str, package: str) -> Iterator[Import]:
    """Yield every import of a Python source, nested ones and literal dynamic ones included.

    Left out is what type checkers alone import: `TYPES`, below `if TYPE_CHECKING`.

    Args:
        text: The source.
        package: Dotted name of the package that relative imports start from.

    Raises:
        SyntaxError: The source is not Python.
    """
    tree = ast.parse(text)
    guarded = {
        node
        for found in ast.walk(tree)
        if isinstance(found, ast.If) and ast.unparse(found.test) == "TYPE_CHECKING"
        for node in found.body
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if node in guarded and alias.name in TYPES:
                    continue
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute("." * node.level + (node.module or ""), package)
            names = tuple(alias.name for alias in node.names)
            yield Import(node.lineno, module, names, node in guarded)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else None
            called = node.func.id if isinstance(node.func, ast.Name) else called
            first = node.args[0]
            if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
                yield Import(node.lineno, _absolute(str(first.value), package))


_LITERAL = re.compile(
    r'"""(?:\\.|[^\\])*?"""'
    r"|'''(?:\\.|[^\\])*?'''"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'"
    r"|#[^\n]*",
    re.DOTALL,
)
_FROM = re.compile(r"(?:^|[;:])\s*from\s+([.\w]+)\s+c?import\b\s*([^;]*)")
_PLAIN = re.compile(r"(?:^|[;:])\s*c?import\s+([^;]+)")
_DYNAMIC = re.compile(r"\b(?:import_module|__import__)\(\s*[\"']([.\w]+)[\"']")


def cython_imports(text: str, package: str) -> Iterator[Import]:
    """Yield every import and cimport of a Cython source; see `python_imports`."""
    for match in _DYNAMIC.finditer(text):
        yield Import(text.count("\n", 0, match.start()) + 1, _absolute(match[1], package))
    for line, code in _logical_lines(text):
        for match in _FROM.finditer(code):
            names = tuple(_imported_names(match[2]))
            yield Import(line, _absolute(match[1], package), names)
        for match in _PLAIN.finditer(code):
            for name in _imported_names(match[1]):
                yield Import(line, name)


_INCLUDE = re.compile(r'(?:#include|\bextern from) "(reader/[\w/]+)\.h"')


def included(text: str) -> Iterator[Import]:
    """Yield the headers of ours that a source of C or Cython includes, by their dotted names."""
    for match in _INCLUDE.finditer(text):
        yield Import(text.count("\n", 0, match.start()) + 1, match[1].replace("/", "."))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (first line's number, code) with literals and comments out and continuations joined."""
    blanked = _LITERAL.sub(lambda literal: "\n" * literal[0].count("\n"), text)
    first, pending = 1, ""
    for number, line in enumerate(blanked.split("\n"), start=1):
        if not pending:
            first = number
        pending += line.removesuffix("\\") + " "
        is_open = sum(pending.count(c) for c in "([{") > sum(pending.count(c) for c in ")]}")
        if not is_open and not line.endswith("\\"):
            yield first, pending
            pending = ""
    if pending:
        yield first, pending


def check(root: Path) -> list[str]:
    """Return the violations below `root`, a checkout, as ``file:line: message``, in order."""
    found: list[tuple[str, int, str]] = []
    for top in (root / "reader", root / "cython_ext" / "reader"):
        for path in sorted(top.rglob("*")):
            if path.suffix in SUFFIXES:
                where = str(path.relative_to(root))
                module = path.relative_to(top.parent).with_suffix("").parts
                found += [(where, line, text) for line, text in _check_file(path, module)]
    told = [f"{where}:{line}: {text}" for where, line, text in sorted(set(found))]
    return told + circles(root / "reader")


def check_page(root: Path) -> list[str]:
    """Return a line for each room that reader/README.md leaves out, invents or puts too early."""
    page = root / "reader" / "README.md"
    if not page.exists():
        return ["reader/README.md:1: is missing: it says what each room is for"]
    rows: dict[str, int] = {}
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), start=1):
        if line.startswith("|"):
            for name in re.findall(r"`(\w+)(?:/|\.py)`", line.split("|")[1]):
                rows[name] = number
    left_out = sorted(ROOMS.keys() - rows.keys() - {"_version"})
    found = [f"reader/README.md:1: says nothing of {room}" for room in left_out]
    for room, number in rows.items():
        if room not in ROOMS:
            found.append(f"reader/README.md:{number}: {room} is no room")
            continue
        late = sorted(other for other in ROOMS[room] if rows.get(other, 0) > number)
        if late:
            found.append(f"reader/README.md:{number}: {room} may import {', '.join(late)} below it")
    return found


def circles(top: Path) -> list[str]:
    """Return a line for each circle of Python modules below `top` that import one another."""
    paths = {
        ".".join(path.relative_to(top.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted(top.rglob("*.py"))
    }
    imports: dict[str, list[str]] = {}
    for module, path in paths.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        with contextlib.suppress(SyntaxError):  # which `check` reports
            found = list(python_imports(path.read_text(encoding="utf-8"), package))
            names = {name for each in found for name in _modules_of(each, paths)}
            imports[module] = sorted((names & paths.keys()) - {module, package})
    done: set[str] = set()
    told: list[str] = []

    def visit(module: str, way: list[str]) -> None:
        if module in way:
            circle = way[way.index(module) :]
            told.append(f"{' -> '.join([*circle, module])}: these modules import one another")
        elif module not in done:
            for other in imports.get(module, []):
                visit(other, [*way, module])
            done.add(module)

    for module in paths:
        if paths[module].name != "__init__.py":  # a package and its modules are one
            visit(module, [])
    return told


def _modules_of(each: Import, known: Iterable[str]) -> Iterator[str]:
    """Yield the imports from a package: its modules if the names are modules, else itself."""
    for name in each.names or ("",):
        module = f"{each.module}.{name}"
        yield module if module in known else each.module


def _check_file(path: Path, parts: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    room = _room_of(parts)
    if room is None:
        yield 1, f"{'.'.join(parts)} is in no room: {', '.join(ROOMS)}"
        return
    floors = FLOORS.get(room)
    if floors and parts[2] not in (*floors, "__init__"):
        yield 1, f"{'.'.join(parts)} is on no floor of {room}: {', '.join(floors)}"
        return
    text, package = path.read_text(encoding="utf-8"), ".".join(parts[:-1])
    try:
        if path.suffix in (".py", ".pyi"):
            imports = list(python_imports(text, package))
        else:
            imports = list(included(text))
            imports += [] if path.suffix == ".h" else cython_imports(text, package)
    except SyntaxError as error:
        yield error.lineno or 1, f"is not Python: {error.msg}"
        return
    for each in imports:
        if each.is_for_types and _room_of((*each.module.split("."), "")) in LATER.get(parts, ()):
            continue
        if _top(each) == "reader":
            message = _judge_own(each, room) or _judge_floor(each, parts)
        else:
            message = _judge_other(each, parts)
        if message:
            yield each.line, message


def _judge_floor(each: Import, parts: tuple[str, ...]) -> str | None:
    """Return the error of an import from another floor of the same room, or None."""
    floors, target = FLOORS.get(parts[1]), each.module.split(".")
    if floors is None or target[:2] != list(parts[:2]) or parts[2] == "__init__":
        return None
    below = floors[: floors.index(parts[2]) + 1]
    for floor in target[2:3] or each.names:
        if floor not in below:
            allowed = ", ".join(below)
            return f"{parts[1]}.{parts[2]} imports {floor} ({each.module}); it may import {allowed}"
    return None


def _judge_own(each: Import, room: str) -> str | None:
    """Return the error of an import of our module from `room`, or None."""
    if room == FACE:
        return None
    parts = each.module.split(".")
    targets = [_room_of((*parts, "")) or parts[1]] if len(parts) > 1 else []
    if not targets:
        # `from reader import name`: a room where the name is one, else an attribute of the face.
        targets = [name if name in ROOMS else FACE for name in each.names] or [FACE]
    for target in targets:
        if target not in (room, *ROOMS[room]):
            allowed = ", ".join(ROOMS[room]) or "no other room"
            return f"{room} imports {target} ({each.module}); it may import {allowed}"
    return None


def _judge_other(each: Import, parts: tuple[str, ...]) -> str | None:
    """Return the error of an import of a foreign module, or None."""
    top, room = _top(each), _room_of(parts)
    if top in ADAPTERS:
        homes = [("reader", home, ADAPTERS[top]) for home in _HOMES]
        is_beside = parts[:2] == homes[0][:2] and parts[2].startswith(f"{ADAPTERS[top]}_")
        if parts[:3] in homes or is_beside:
            return None
        only = " and ".join("/".join(home) for home in homes)
        return f"imports {top}, which only {only} may; look in sys.modules instead"
    if room in ("errors", "places", "checks", "config", "_version") and top == "cloudpickle":
        return f"{room} imports {top}; it may import the standard library and numpy"
    known = top in sys.stdlib_module_names or top in DEPENDENCIES | OPTIONAL | CYTHON
    if known or room == "frameworks" or room in OF_ROOMS.get(top, ()):
        return None
    return f"imports {top}, which is neither the standard library nor a dependency"


def _room_of(parts: tuple[str, ...]) -> str | None:
    """Name the room of a module given as its dotted parts, or None where it has none."""
    if len(parts) < 2 or parts[1] == "__init__":
        return FACE
    return parts[1] if parts[1] in ROOMS else None


def _absolute(name: str, package: str) -> str:
    level = len(name) - len(name.lstrip("."))
    if not level:
        return name
    base = package.split(".")[: len(package.split(".")) - level + 1]
    return ".".join([*base, *filter(None, [name[level:]])])


def _imported_names(text: str) -> Iterator[str]:
    for part in text.strip(" ()").split(","):
        words = part.split()
        if words:
            yield words[0]


def _top(each: Import) -> str:
    return each.module.split(".")[0]


def main(arguments: list[str]) -> int:
    """Check the checkout named by the first argument, or the one this file lies in."""
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    violations = check(root) + check_page(root)
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
