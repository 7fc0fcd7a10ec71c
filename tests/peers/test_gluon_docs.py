"""docs/gluon.md held to the tree: no cell blank, every test it names exists, nothing left out.

Imports the face. Holds nothing but the page.
"""

from __future__ import annotations

import inspect
import re

import pytest

from reader.compat import gluon
from tests.peers.page import Page

PAGE = Page("gluon")


def test_no_cell_is_blank_and_each_line_names_its_test() -> None:
    for row in PAGE.rows():
        assert len(row) == 4, row
        assert row[0], row
        assert row[2], row
        assert re.search(r"`([\w./-]+\.py)::(\w+)`", row[3]), row
    assert len(PAGE.rows()) > 70


def test_every_test_that_is_named_exists() -> None:
    PAGE.check_tests()


def test_every_argument_of_the_constructor_has_a_line() -> None:
    arguments = inspect.signature(gluon.DataLoader.__init__).parameters
    firsts = PAGE.firsts()
    assert [name for name in arguments if name != "self" and name not in firsts] == []


@pytest.mark.parametrize("package", [gluon, gluon.nlp, gluon.batchify, gluon.vision])
def test_every_public_name_is_named(package: object) -> None:
    text = PAGE.text
    names = package.__all__  # type: ignore[attr-defined]
    left_out = {"Splitter", "line_splitter", "whitespace_splitter", "BucketScheme", "Sampler"}
    left_out |= {"ConstWidthBucket", "LinearWidthBucket", "ExpWidthBucket", "Batchify"}
    left_out |= {"default_mp_batchify_fn", "DatasetStream"}
    assert [name for name in names if name not in text and name not in left_out] == []
