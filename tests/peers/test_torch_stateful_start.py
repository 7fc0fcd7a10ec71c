"""`iter` of a StatefulDataLoader raises what a worker's start raises, and leaves nothing behind.

Imports pytest, torch and the torch face. Holds nothing.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from reader import LoadTimeout
from reader.compat.torch import DataLoader, StatefulDataLoader

pytestmark = [pytest.mark.peer, pytest.mark.timeout(60)]


class Own(Exception):
    """An error with an attribute."""

    def __init__(self, worker: int) -> None:
        super().__init__(f"worker {worker} does not start")
        self.worker = worker


def refuse_last(worker: int) -> None:
    if worker == 1:
        raise Own(worker)


def refuse(worker: int) -> None:
    raise Own(worker)


def leave(worker: int) -> None:
    if worker == 1:
        os._exit(3)


def seed(worker: int) -> None:
    torch.manual_seed(worker)


STARTS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"multiprocessing_context": "spawn"},
        {"worker_type": "thread"},
        {"persistent_workers": True},
    ],
)


@pytest.mark.sampled(2)
@STARTS
@pytest.mark.parametrize("function", [refuse_last, refuse])
def test_error_of_worker_init_fn_is_raised_by_iter(function: Any, options: dict[str, Any]) -> None:
    loader = StatefulDataLoader(range(9), 2, num_workers=2, worker_init_fn=function, **options)
    for _ in range(2):
        with pytest.raises(Own, match=r"Caught Own in DataLoader worker process \d") as caught:
            iter(loader)
        assert caught.value.worker in (0, 1)
    loader.worker_init_fn = None
    assert [each.tolist() for each in loader] == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]


@pytest.mark.sampled(2)
@STARTS
def test_iter_waits_for_a_start_without_error_and_loses_no_batch(options: dict[str, Any]) -> None:
    with StatefulDataLoader(range(9), 2, num_workers=2, worker_init_fn=seed, **options) as loader:
        for _ in range(2):
            assert [each.tolist() for each in loader] == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]


def test_worker_that_exits_in_worker_init_fn_hangs_nothing() -> None:
    loader = StatefulDataLoader(range(9), 2, num_workers=2, worker_init_fn=leave)
    with pytest.raises(RuntimeError, match="exited unexpectedly with exit code 3"):
        list(loader)


@pytest.mark.parametrize("options", [{}, {"worker_type": "thread"}])
def test_worker_init_fn_that_never_returns_is_late(options: dict[str, Any]) -> None:
    event = threading.Event()  # nobody sets that of a process

    def wait(worker: int) -> None:
        if worker == 1:
            event.wait()

    loader = StatefulDataLoader(
        range(9), 2, num_workers=2, worker_init_fn=wait, timeout=0.5, **options
    )
    text = r"DataLoader timed out after 0\.5 seconds: worker_init_fn has not returned.*\[.*1\]"
    try:
        with pytest.raises(RuntimeError, match=text) as caught:
            iter(loader)
    finally:
        event.set()
    assert isinstance(caught.value, LoadTimeout)


class Dying:
    """Ends its worker at one sample, the first time."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[int, int]:
        if index == 3 and not self.mark.exists():
            self.mark.touch()
            os._exit(1)
        return index, torch.initial_seed()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_worker_that_replaces_a_dead_one_starts_the_same(start: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"multiprocessing_context": start, "worker_retries": 1}
    loader = StatefulDataLoader(
        Dying(tmp_path / "died"), None, num_workers=2, worker_init_fn=seed, **options
    )
    assert list(loader) == [[each, each % 2] for each in range(6)]


def test_data_loader_has_the_error_at_the_workers_first_batch_as_pytorch() -> None:
    batches = iter(DataLoader(range(9), 2, num_workers=2, worker_init_fn=refuse_last))
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(Own, match="Caught Own in DataLoader worker process 1"):
        next(batches)
