"""docs/concurrency.md names every lock of the sources, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = "docs/concurrency.md"
SECTION = "### Locks"
MAKERS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "allocate_lock"}


def is_lock(value: ast.expr) -> bool:
    """Whether an expression makes a lock: `threading.Lock()`, `Condition(...)`."""
    if not isinstance(value, ast.Call):
        return False
    name = value.func
    return (name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")) in MAKERS


def python_locks(source: str, module: str) -> Iterator[str]:
    """Name the owner of a lock: `Class.field`, or `module.name` outside of classes."""

    def within(node: ast.AST, owner: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Assign, ast.AnnAssign)) and child.value is not None:
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                if is_lock(child.value):
                    for target in targets:
                        yield f"{owner}.{getattr(target, 'attr', getattr(target, 'id', '?'))}"
            yield from within(child, child.name if isinstance(child, ast.ClassDef) else owner)

    return within(ast.parse(source), module)


def core_locks(source: str) -> Iterator[str]:
    """Name the mutexes of the core: `struct.field`."""
    owner = "?"
    for line in source.splitlines():
        struct = re.match(r"\s*(?:ctypedef |cdef |typedef )*(?:struct|class) (\w+)", line)
        if struct:
            owner = struct[1]
        mutex = re.match(r"\s*(?:cdef )?pthread_mutex_t (\w+)", line)
        if mutex:
            yield f"{owner}.{mutex[1]}"
        lock = re.match(r"\s*self\.(\w+) = (?:threading\.)?(\w+)\(", line)
        if lock and lock[2] in MAKERS:
            yield f"{owner}.{lock[1]}"


def locks_of_sources() -> dict[str, str]:
    """Every lock of the package, and the file it is made in."""
    found = {}
    for path in sorted((ROOT / "reader").rglob("*.py")):
        for name in python_locks(path.read_text(encoding="utf-8"), path.stem):
            found[name] = str(path.relative_to(ROOT))
    for path in sorted((ROOT / "cython_ext").rglob("*.*")):
        if path.suffix in {".pyx", ".pxd", ".h"}:
            for name in core_locks(path.read_text(encoding="utf-8")):
                found[name] = str(path.relative_to(ROOT))
    return found


def locks_of_page() -> list[str]:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    (section,) = re.findall(rf"^{SECTION}\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE)


def test_table_of_locks_names_those_of_the_sources() -> None:
    made, named = locks_of_sources(), locks_of_page()
    advice = [
        f"add the line `| `{name}` | what it guards |`: it is made in {made[name]}"
        for name in sorted(made.keys() - set(named))
    ]
    advice += [
        f"take the line of `{name}` out: no source makes such a lock"
        for name in sorted(set(named) - made.keys())
    ]
    advice += [
        f"`{name}` has {named.count(name)} lines"
        for name in sorted(set(named))
        if named.count(name) > 1
    ]
    assert not advice, f"{PAGE}, section {SECTION!r}:\n" + "\n".join(advice)


def test_order_of_locks_names_locks_of_the_table() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    (block,) = re.findall(r"^### Order of locks\n\n((?:    .*\n)+)", text, re.MULTILINE)
    ours = set(re.findall(r"\b\w+\.\w+\b", block))
    assert ours <= set(locks_of_page()), f"{PAGE} orders locks that it does not list"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("class A:\n def f(self):\n  self._a = threading.RLock()", ["A._a"]),
        ("_b: Any = Lock()", ["m._b"]),
        ("def g():\n global _c\n _c = threading.Condition(threading.Lock())", ["m._c"]),
        ("class A:\n class B:\n  c = threading.Lock()\n d = threading.Lock()", ["B.c", "A.d"]),
        ("e = threading.Event()", []),
    ],
)
def test_locks_are_found_wherever_python_makes_them(source: str, names: list[str]) -> None:
    assert list(python_locks(source, "m")) == names


def test_mutexes_are_found_in_the_structs_of_the_core() -> None:
    struct = "cdef struct a:\n    int x\n    pthread_mutex_t one\n"
    assert list(core_locks(f"{struct}cdef class B:\n    cdef pthread_mutex_t two")) == [
        "a.one",
        "B.two",
    ]
