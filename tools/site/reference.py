"""The public names of the package, where each is defined, and the page of docs/api that shows it.

Reads sources and pages and imports nothing of the package, so that it needs no framework. Keeps no
state. A page of docs/api names what it shows by items of a list, each a link to the source:
"- [reader.DataLoader](../../reader/loader.py)". On the site the documentation stands in its place.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["INSIDE", "ITEM", "MODULES", "PublicName", "public_names", "shown_names"]

# How the core's classes work inside: the package uses it, and programs have no need of it.
INSIDE = """adapted attached capsules imported is_page_locked joined layout lock_pages note
numpy_fields objects place_fields plain_containers private_copy raise_closed schema seq
slot_address slot_bytes storage storage_fields structure types view_array""".split()
MODULES = (
    "reader",
    "reader.images",
    "reader.collate",
    "reader.compat.torch",
    "reader.compat.torch.sampler",
    "reader.compat.paddle",
    "reader.compat.paddle.reader",
    "reader.compat.gluon",
    "reader.compat.gluon.batchify",
    "reader.compat.gluon.recordio",
    "reader.compat.gluon.vision",
    "reader.compat.gluon.nlp",
    "reader.compat.gluon.nlp.batchify",
    "reader.integrations.lightning",
    "reader.integrations.nvtx",
    "reader.integrations.paddle",
    "reader.integrations.prometheus",
    "reader.integrations.pytorch_lightning",
    "reader.integrations.rich",
    "reader.integrations.scalars",
    "reader.integrations.tensorboard",
    "reader.integrations.tqdm",
    "reader.integrations.transformers",
    "reader.integrations.visualdl",
)
ITEM = re.compile(r"^- \[(reader[\w.]*)\]\(([^)\s]+)\)$", re.MULTILINE)


class PublicName(NamedTuple):
    """A name that a user imports, and the file that defines it, relative to the checkout."""

    name: str
    source: str


def public_names(root: Path) -> list[PublicName]:
    """Return what the public modules export and this package defines, each with its module.

    Names that belong to PyTorch or Paddle, and submodules, are left out: the former are told about
    in their own libraries' documents, the latter are in `MODULES`.
    """
    found = []
    for module in MODULES:
        for name in _exported(_tree(root, module)):
            home = _home(root, module, name)
            if home:
                found.append(PublicName(f"{module}.{name}", _source(root, home)))
    return found


def shown_names(root: Path) -> Iterator[tuple[str, PublicName]]:
    """Yield (page, name) for each item of the pages of docs/api; the page is relative to docs."""
    for page in sorted((root / "docs/api").glob("*.md")):
        for name, link in ITEM.findall(page.read_text(encoding="utf-8")):
            source = (page.parent / link).resolve().relative_to(root.resolve())
            yield f"api/{page.name}", PublicName(name, str(source))


def _home(root: Path, module: str, name: str) -> str | None:
    """Return the module that defines a name, or None where that is not of this package."""
    tree = _tree(root, module)
    homes = [
        node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and name in [each.asname or each.name for each in node.names]
    ]
    ours = [home for home in homes if home.split(".")[0] == "reader"]
    if not homes:
        return module
    if not ours or f"{ours[-1]}.{name}" in MODULES or _is_module(root, f"{ours[-1]}.{name}"):
        return None
    return _home(root, ours[-1], name)


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [str(each) for each in ast.literal_eval(node.value)]
    return []


@functools.cache
def _tree(root: Path, module: str) -> ast.Module:
    return ast.parse(_file(root, module).read_text(encoding="utf-8"))


def _is_module(root: Path, module: str) -> bool:
    return _file(root, module).exists()


def _file(root: Path, module: str) -> Path:
    path = root.joinpath(*module.split("."))
    for each in (path / "__init__.py", path.with_suffix(".py")):
        if each.exists():
            return each
    return path.with_suffix(".pyi")


def _source(root: Path, module: str) -> str:
    path = _file(root, module)
    if path.suffix == ".pyi":
        path = root / "cython_ext" / path.relative_to(root).with_suffix(".pyx")
    return str(path.relative_to(root))
