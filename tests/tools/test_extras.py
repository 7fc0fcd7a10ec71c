"""The tool that tries the extras, and its table, which has the present floors."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tools import pyproject
from tools.extras import __main__ as tool
from tools.extras.environment import OPTIONAL, passed_in
from tools.extras.extra import CORE, EXTRAS
from tools.extras.row import HEAD, Row
from tools.pyproject import Floor

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/compatibility.md").read_text()
FOR_DEVELOPERS = {"demo", "bench", "test"}  # installed under requirements/constraints.txt
EXTRA = pytest.mark.parametrize("extra", EXTRAS, ids=lambda each: each.name)


def rows_of(name: str, which: str) -> list[Row]:
    return [row for row in Row.read(PAGE) if (row.extra, row.which) == (name, which)]


def test_floors_are_read_from_pyproject() -> None:
    found = pyproject.extras()
    assert Floor("torch", "2.4") in found["torch"]
    assert [each.package for each in found["images"]] == ["pillow", "simplejpeg"]
    assert [each.package for each in pyproject.dependencies()] == ["numpy", "cloudpickle"]
    names = [each.split(">")[0] for each in pyproject.build_requirements()]
    assert names == ["setuptools", "cython", "numpy"]


def test_a_requirement_without_a_floor_is_refused() -> None:
    assert Floor.of("cuda-bindings>=12.8").pin == "cuda-bindings==12.8"
    for text in ("torch", "torch==2.4", "torch>=2.4,<3", "torch>2"):
        with pytest.raises(ValueError, match="is not of the form"):
            Floor.of(text)


def test_a_floor_equals_its_version_with_trailing_zeros() -> None:
    floor = Floor("pillow", "10")
    assert floor.is_version("10.0.0")
    assert not floor.is_version("10.0.1")
    assert not floor.is_version("1")


def test_each_extra_for_users_is_tried() -> None:
    assert {each.name for each in EXTRAS} == {CORE, *pyproject.extras()} - FOR_DEVELOPERS


@EXTRA
def test_the_tests_of_an_extra_exist(extra: tool.Extra) -> None:
    paths = [each for each in extra.tests if each.startswith("tests/")]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert {*extra.imports} <= {*OPTIONAL}  # or nobody would see that one is missing


@EXTRA
def test_the_floors_were_tried(extra: tool.Extra) -> None:
    (row,) = rows_of(extra.name, "oldest")
    tried = row.versions
    assert list(tried) == [floor.package for floor in extra.floors]
    assert all(floor.is_version(tried[floor.package]) for floor in extra.floors), (
        f'a floor of {extra.name} has changed: run `make extras ARGS="oldest {extra.name}"`, and'
        " put its row into docs/compatibility.md"
    )


@EXTRA
def test_the_newest_were_tried_too(extra: tool.Extra) -> None:
    (row,) = rows_of(extra.name, "newest")
    assert list(row.versions) == [floor.package for floor in extra.floors]


@pytest.mark.parametrize("row", Row.read(PAGE), ids=lambda row: f"{row.extra}-{row.which}")
def test_all_tried_versions_passed(row: Row) -> None:
    assert row.outcome.startswith("passed")
    assert int(row.passed) > 0
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.day)
    assert row.extra in {each.name for each in EXTRAS}
    assert row.which in tool.WHICH


def test_a_row_is_read_as_it_was_written() -> None:
    row = Row("x", "oldest", "a 1.0, b-c 2.0.1", "3.11", "1.26.4", "7", "2026-01-02", "passed")
    assert Row.read(f"before\n\n{HEAD}\n{row}\n\nbehind\n") == [row]
    assert row.versions == {"a": "1.0", "b-c": "2.0.1"}
    assert Row.read("a page without a table") == []


def test_the_extras_to_try_can_be_chosen() -> None:
    every = tool.chosen(set())
    assert len(every) == 2 * len(EXTRAS)
    assert [(extra.name, which) for extra, which in tool.chosen({"jax"})] == [
        ("jax", "oldest"),
        ("jax", "newest"),
    ]
    assert [(e.name, which) for e, which in tool.chosen({"newest", "jax"})] == [("jax", "newest")]
    assert {which for _, which in tool.chosen({"oldest"})} == {"oldest"}
    with pytest.raises(SystemExit, match="there is no mxnet, but"):
        tool.chosen({"mxnet"})


def test_a_missing_python_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"there is no Python 3\.99 here"):
        tool.python_for("3.99")
    assert tool.python_for("%d.%d" % sys.version_info[:2]).exists()  # noqa: UP031


def test_tests_that_passed_are_counted(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    report.write_text(
        '<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10"/>'
        "</testsuites>"
    )
    assert passed_in(report) == 4


def test_make_old_paddle_and_the_extra_run_the_same_tests() -> None:
    makefile = (ROOT / "Makefile").read_text()
    files, left_out = re.findall(r"^(?:NOT_)?OF_PADDLE_26 := (.*)$", makefile, re.MULTILINE)
    (extra,) = (each for each in EXTRAS if each.name == "paddle-gpu")
    *paths, option, expression = extra.tests
    assert [Path(each).stem for each in paths] == files.split()
    assert (option, expression) == ("-k", left_out)
