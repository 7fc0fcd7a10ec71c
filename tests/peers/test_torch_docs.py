"""docs/torch.md held to the tree: no cell blank, every test it names exists, nothing left out.

Imports pytest and, for the names that must be there, torch. Holds nothing but the page.
"""

from __future__ import annotations

import inspect

import pytest
import torch.utils.data
import torchdata.stateful_dataloader

import reader.compat.torch
from tests.peers.page import Page

PAGE = Page("torch")


def test_no_cell_is_blank_and_each_line_names_its_test() -> None:
    PAGE.check_cells(at_least=90)


def test_every_test_that_is_named_exists() -> None:
    PAGE.check_tests()


@pytest.mark.parametrize(
    "loader",
    [
        torch.utils.data.DataLoader,
        reader.compat.torch.DataLoader,
        torchdata.stateful_dataloader.StatefulDataLoader,
    ],
)
def test_every_argument_of_the_constructor_has_a_line(loader: type) -> None:
    arguments = inspect.signature(loader.__init__).parameters
    firsts = PAGE.firsts()
    assert [name for name in arguments if name != "self" and name not in firsts] == []


@pytest.mark.parametrize(
    "name",
    "_workers _index_sampler _auto_collation _dataset_kind get_worker_info __getitems__ "
    "default_collate_fn_map default_convert set_epoch isinstance StopIteration".split(),
)
def test_every_habit_of_programs_has_a_line(name: str) -> None:
    assert any(name in cell for row in PAGE.rows() for cell in row[:3])
