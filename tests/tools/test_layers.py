"""The layer check passes on this checkout and finds each kind of violation on made-up ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.check_layers import ROOMS, check, check_page, cython_imports, python_imports

ROOT = Path(__file__).parents[2]


def made_up(root: Path, files: dict[str, str]) -> list[str]:
    """Write `files`, texts by path, below `root`, and check it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return check(root)


def test_this_checkout_keeps_its_layers() -> None:
    assert check(ROOT) == []


def test_every_room_allows_only_rooms_before_it() -> None:
    order = list(ROOMS)
    for room, allowed in ROOMS.items():
        earlier = {*order[: order.index(room)], "the face"}
        assert set(allowed) <= earlier


def test_workers_and_frameworks_do_not_know_each_other() -> None:
    assert "frameworks" not in ROOMS["worker"]
    assert "worker" not in ROOMS["frameworks"]


@pytest.mark.parametrize(
    "text",
    [
        "import reader.engine.window",
        "import os, reader.engine as engine",
        "from reader.engine import window",
        "from reader import engine",
        "from reader import errors, engine",
        "from ..engine.window import Window",
        "from .. import engine",
        "def f():\n    from reader.engine import window",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from reader.engine import window",
        "import importlib\nimportlib.import_module('reader.engine')",
        "__import__('reader.engine')",
        "try:\n    from reader.loader import DataLoader\nexcept ImportError:\n    pass",
        "from reader import DataLoader",
        "import reader",
    ],
)
def test_an_upward_import_in_python_is_found(tmp_path: Path, text: str) -> None:
    found = made_up(tmp_path, {"reader/data/collate.py": text})
    assert len(found) == 1
    line = 1 + text[: max(text.find("reader."), text.find("from reader"), 0)].count("\n")
    assert found[0].startswith(f"reader/data/collate.py:{line}: data imports ")
    assert "it may import errors, places, checks, config, _core" in found[0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("cimport reader.engine.window", 1),
        ("from reader.engine.window cimport Window", 1),
        ("from ...engine cimport window", 1),
        ("from ... cimport engine", 1),
        ("# a note\nfrom reader.data import collate", 2),
        ("cdef int f() except -1:\n    from reader.data import collate\n    return 0", 2),
        ("from reader.errors import (\n    ArenaFull,\n)\nfrom reader.data import collate", 4),
        ("from reader import (\n    errors,\n    data,\n)", 1),
        ("from reader import errors, \\\n    data", 1),
        ('"""Says:\n\nimport nothing.\n"""\nimport os; import reader.data', 5),
        ("import reader.errors, reader.data", 1),
        ("import importlib\nx = importlib.import_module('reader.data')", 2),
        ("try: from reader.data import collate\nexcept ImportError: pass", 1),
    ],
)
@pytest.mark.parametrize("suffix", ["pyx", "pxd"])
def test_an_upward_import_in_cython_is_found(
    tmp_path: Path, text: str, line: int, suffix: str
) -> None:
    found = made_up(tmp_path, {f"cython_ext/reader/_core/memory/arena.{suffix}": text})
    assert len(found) == 1
    where = f"cython_ext/reader/_core/memory/arena.{suffix}:{line}"
    assert found[0].startswith(f"{where}: _core imports ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cython_ext/reader/_core/memory/arena.pyx", "from reader._core.batch.dtype cimport A"),
        ("cython_ext/reader/_core/memory/arena.pxd", "cimport reader._core.wire.channel"),
        ("cython_ext/reader/_core/memory/arena.pyx", "from reader._core import batch"),
        ("cython_ext/reader/_core/memory/arena.pyx", 'cdef extern from "reader/_core/wire/a.h":'),
        ("cython_ext/reader/_core/memory/a.h", '#include "reader/_core/wire/a.h"'),
        ("reader/_core/memory/arena.pyi", "from reader._core.steps.window import Window"),
    ],
)
def test_an_import_from_a_floor_above_is_found(tmp_path: Path, name: str, text: str) -> None:
    (found,) = made_up(tmp_path, {name: f"\n{text}\n"})
    assert found.startswith(f"{name}:2: _core.memory imports ")
    assert found.endswith("it may import interpreter, random, memory")


def test_modules_that_import_one_another_are_found(tmp_path: Path) -> None:
    files = {
        "reader/data/a.py": "from reader.data import b",
        "reader/data/b.py": "def f():\n    from reader.data.c import x",
        "reader/data/c.py": "if TYPE_CHECKING:\n    import reader.data.a",
        "reader/data/d.py": "from reader.data.a import y",
    }
    (found,) = made_up(tmp_path, files)
    assert found.startswith("reader.data.a -> reader.data.b -> reader.data.c -> reader.data.a: ")


def test_a_module_of_the_core_lies_on_a_floor(tmp_path: Path) -> None:
    (found,) = made_up(tmp_path, {"cython_ext/reader/_core/arena.pyx": ""})
    assert "reader._core.arena is on no floor of _core" in found


def test_types_of_checkers_are_imported_for_them_alone(tmp_path: Path) -> None:
    plain = "import typing_extensions\n"
    guarded = f"if TYPE_CHECKING:\n    {plain}"
    assert made_up(tmp_path, {"reader/loader.py": guarded}) == []
    for text in (plain, f"{guarded}else:\n    {plain}", f"if not TYPE_CHECKING:\n    {plain}"):
        found = made_up(tmp_path, {"reader/loader.py": text})
        assert [each for each in found if "typing_extensions, which is neither" in each]


def test_text_that_looks_like_an_import_is_none() -> None:
    text = (
        '"""from reader.engine import window\nimport reader.engine\n"""\n'
        "# import reader.engine\n"
        "x = 'import reader.engine'  # from reader import engine\n"
        'cdef extern from "layout.h" nogil:\n    int imports(int reader) noexcept\n'
        "cdef int important = 1\n"
    )
    assert list(cython_imports(text, "reader._core")) == []
    assert list(python_imports("x = 'import reader.engine'", "reader.data")) == []


def test_a_room_may_import_the_rooms_before_it_and_itself(tmp_path: Path) -> None:
    assert (
        made_up(
            tmp_path,
            {
                "reader/__init__.py": "from reader.loader import DataLoader",
                "reader/errors.py": "import numpy",
                "reader/config.py": "from . import errors\nfrom reader.errors import A",
                "reader/data/collate.py": "from . import dataset\nimport reader._core.memory.arena",
                "reader/worker/loop.py": "from reader.data import collate",
                "reader/engine/schedule.py": "from reader import worker, frameworks, data",
                "reader/loader.py": "from reader.engine import window\nimport cloudpickle",
                "reader/compat/torch.py": "from reader.loader import DataLoader",
                "reader/__main__.py": "from reader import __version__\nimport reader.compat",
                "reader/frameworks/torch.py": "import torch.utils.dlpack\nimport numpy",
                "reader/_core/memory/arena.pyi": "from reader.errors import ArenaFull",
                "cython_ext/reader/_core/memory/arena.pyx": (
                    "from libc.stdint cimport int64_t\ncimport numpy\n"
                    "from reader._core.random.key cimport Key\nfrom reader.config import K"
                ),
            },
        )
        == []
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("reader/errors.py", "from reader import config", "errors imports config"),
        ("reader/errors.py", "import cloudpickle", "errors imports cloudpickle"),
        ("reader/worker/loop.py", "import reader.frameworks.torch", "imports frameworks"),
        ("reader/frameworks/jax.py", "from reader import worker", "imports worker"),
        ("reader/data/collate.py", "import torch", "reader/compat/torch may"),
        ("reader/frameworks/torch.py", "import paddle", "reader/compat/paddle may"),
        ("reader/frameworks/__init__.py", "import jax", "reader/compat/jax may"),
        ("reader/compat/gluon.py", "from torch.utils import data", "look in sys.modules"),
        ("reader/loader.py", "def f():\n    import mxnet", "reader/frameworks/mxnet"),
        ("reader/engine/schedule.py", "import psutil", "neither the standard library nor"),
        ("reader/tricks.py", "", "reader.tricks is in no room"),
        ("reader/engine/schedule.py", "def f(:", "is not Python"),
    ],
)
def test_each_other_violation_says_what_is_wrong(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    found = made_up(tmp_path, {name: text})
    assert len(found) == 1
    assert message in found[0]


def test_the_page_of_the_rooms_names_each_after_those_that_it_imports() -> None:
    assert check_page(ROOT) == []


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("`formats/`", "`other/`", "says nothing of formats|other is no room"),
        ("| **`engine/`** |", "|\n| `engine/`, `data/` |", "may import data below it"),
        ("**`engine/`**", "`loader.py`", "says nothing of engine"),
    ],
)
def test_a_page_of_other_rooms_is_found(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    text = (ROOT / "reader/README.md").read_text()
    assert before in text
    (tmp_path / "reader").mkdir()
    (tmp_path / "reader/README.md").write_text(text.replace(before, after))
    assert re.search(message, "\n".join(check_page(tmp_path)))


def test_a_missing_page_of_the_rooms_is_found(tmp_path: Path) -> None:
    assert check_page(tmp_path) == ["reader/README.md:1: is missing: it says what each room is for"]


def test_the_command_prints_violations_and_exits_1(tmp_path: Path) -> None:
    made_up(tmp_path, {"reader/data/collate.py": "\nimport reader.engine"})
    (tmp_path / "reader/README.md").write_text((ROOT / "reader/README.md").read_text())

    def run(root: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tools.check_layers", str(root)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    bad = run(tmp_path)
    assert bad.returncode == 1
    assert bad.stdout.startswith("reader/data/collate.py:2: data imports engine (reader.engine)")
    assert bad.stdout.count("\n") == 1
    (tmp_path / "reader/data/collate.py").write_text("import reader.errors\n")
    good = run(tmp_path)
    assert (good.returncode, good.stdout) == (0, "")


def test_an_optional_library_is_imported_in_its_rooms_alone(tmp_path: Path) -> None:
    text = "def f():\n    import pyarrow.parquet"
    assert made_up(tmp_path, {"reader/formats/arrow_source.py": text}) == []
    (found,) = made_up(tmp_path, {"reader/engine/other.py": text})
    assert found.endswith("imports pyarrow, which is neither the standard library nor a dependency")


def test_a_public_package_names_what_a_later_room_defines_to_type_checkers_alone(
    tmp_path: Path,
) -> None:
    text = "from reader.formats.table_rows import TableRows\n"
    guarded = f"if TYPE_CHECKING:\n    {text}"
    assert made_up(tmp_path, {"reader/data/__init__.py": guarded}) == []
    for name, content in {"__init__": text, "other": guarded}.items():
        (found,) = made_up(tmp_path, {f"reader/data/{name}.py": content})
        assert "data imports formats (reader.formats.table_rows); it may import" in found
        (tmp_path / f"reader/data/{name}.py").unlink()
