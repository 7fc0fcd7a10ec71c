"""docs/paddle.md held to the tree: no cell blank, every test it names exists, nothing left out.

Imports pytest and, for the names that must be there, paddle.io. Holds nothing but the page.
"""

from __future__ import annotations

import inspect
import re

import pytest

from tests.peers.page import Page

PAGE = Page("paddle")


def test_no_cell_is_blank_and_each_line_names_its_test() -> None:
    PAGE.check_cells(at_least=100)


def test_every_test_that_is_named_exists() -> None:
    PAGE.check_tests()


def test_every_argument_of_the_constructor_has_a_line() -> None:
    import paddle.io

    firsts = PAGE.firsts()
    arguments = inspect.signature(paddle.io.DataLoader.__init__).parameters
    assert [name for name in arguments if name != "self" and name not in firsts] == []


def test_every_name_of_paddle_io_has_a_line() -> None:
    import paddle.io

    names = paddle.io.__all__
    assert [name for name in names if not re.search(rf"\b{name}\b", PAGE.text)] == []


@pytest.mark.parametrize(
    "name",
    "from_generator PyReader from_dataset cache map_readers shuffle chain compose buffered firstn "
    "xmap_readers multiprocess_reader batch use_pinned_memory keep_data_loader_order".split(),
)
def test_every_older_way_of_feeding_has_a_line(name: str) -> None:
    assert any(re.search(rf"\b{name}\b", row[0]) for row in PAGE.rows())
