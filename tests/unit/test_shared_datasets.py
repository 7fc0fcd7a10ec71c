"""A dataset that tests share is written once: in tests/datasets.py, tests/streams.py, or nearer."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]


class _Nameless(ast.NodeTransformer):
    """Removes allowed differences of two equal classes: docstrings, types, names of arguments."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        names = {each.arg: f"_{n}" for n, each in enumerate(node.args.args)}
        for each in ast.walk(node):
            if isinstance(each, ast.arg):
                each.arg, each.annotation = names.get(each.arg, each.arg), None
            elif isinstance(each, ast.Name):
                each.id = names.get(each.id, each.id)
        node.returns, node.body = None, _without_text(node.body)
        return node


def _without_text(body: list[ast.stmt]) -> list[ast.stmt]:
    is_text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    return body[1:] if is_text else body


def same_datasets(files: dict[str, str]) -> list[list[str]]:
    """Return the places of datasets, samplers and streams that are written more than once."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, text in files.items():
        for node in ast.parse(text).body:
            if not isinstance(node, ast.ClassDef):
                continue
            body = _without_text(node.body)
            functions = {each.name for each in body if isinstance(each, ast.FunctionDef)}
            if functions & {"__getitem__", "__iter__"}:
                bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
                alike = [ast.dump(_Nameless().visit(each)) for each in body]
                found["\n".join([*bases, *alike])].append(f"{name}: {node.name}")
    return [places for places in found.values() if len(places) > 1]


def test_no_two_modules_of_tests_write_the_same_dataset() -> None:
    files = {
        str(path.relative_to(TESTS)): path.read_text(encoding="utf-8")
        for path in sorted(TESTS.rglob("*.py"))
        if not path.name.startswith("typed_")  # each is a whole program for a type checker
    }
    assert same_datasets(files) == []


def test_datasets_are_the_same_whatever_their_names_words_and_types_are() -> None:
    one = "class A(Rows):\n  'An a.'\n  def __getitem__(self, i: int) -> int:\n    return i + 1"
    other = "class B(Rows[int]):\n  def __getitem__(self, at):\n    'It.'\n    return at + 1"
    assert same_datasets({"a": one, "b": other}) == [["a: A", "b: B"]]
    assert same_datasets({"a": one, "b": other.replace("1", "2")}) == []
    assert same_datasets({"a": one, "b": other.replace("Rows", "Other")}) == []
